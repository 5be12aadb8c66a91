import SharedDevice
import SharedDeviceBroker

/// A process of an app, as the library `SharedDevice` runs it: `SessionKeeper` asks and keeps the record, `AccountFollower` shows, hides and
/// cleans up. What those two decide of a record is the library's own `SessionRecord` and `CleanupPlan`; the order of their questions is
/// written down here once more, because the library's is spread over tasks.
struct AppProcess {
    /// Why the keeper asks.
    enum Purpose {
        /// To follow the account.
        case change
        /// Whether the session of a token still lasts.
        case token(DeviceSession)
    }

    /// What the keeper is doing. It does one thing at a time.
    enum Keeper {
        case free
        case asks(UInt64, Purpose)
        /// It sends these receipts, one after the other; then it asks for the purpose, or is done with a cleanup.
        case reports(UInt64, [SessionRecord.Receipt], Purpose?)
    }

    enum Follower {
        case waits
        case cleans(CleanupPlan, [SessionRecord.Session])
        /// The steps are finished: the record is to say so.
        case isClean([SessionRecord.Session])
        /// The receipts are on their way.
        case reports
    }

    /// What a message from the bus says.
    enum Message {
        case broadcast
        case reply(UInt64, Result<BrokerProtocol.Fields, Refusal>)
        /// The call has failed: nobody answered it.
        case failed(UInt64)
        /// The connection was lost, and is there again under another name.
        case reconnected
    }

    let slot: Int
    let home: Int
    var keeper = Keeper.free
    var follower = Follower.waits
    /// The session of which it shows data, and may store some.
    var shown: UInt64?
    var told: DeviceSession?
    var held: [SessionRecord.Session] = []
    /// The sessions that it was last told are over, and has not cleaned up.
    var stale: [SessionRecord.Session] = []
    /// The broker's marks by then.
    var staleMarks: [UInt64: UInt64] = [:]
    /// The sessions whose receipts are on their way.
    var unconfirmed: [SessionRecord.Session] = []
    /// The journal of a try that failed.
    var journal: CleanupJournal?
    var lastEpoch: UInt64 = 0
    var isStrict: Bool?
    var mustAsk = true
    var isFirst = true
    var retryAt: Duration?
    var pause = Duration.seconds(1)
    /// How many broadcasts it has heard.
    var heard = 0
    /// The answer that came with the last receipt, and the broadcasts heard when that was sent.
    var fresh: SessionAnswer?
    var reportedAfter = 0
    /// Token requests and sign-ins under way, with the broadcasts heard before.
    var tokens: [UInt64: Int] = [:]
    /// Sessions that came with a token, and wait for the keeper.
    var arrived: [(session: DeviceSession, isDoubtful: Bool)] = []
    /// How often the next cleanup step fails.
    var failures = 0
    /// What it does wrong.
    var mistakes: AppMistakes = []

    init(slot: Int, home: Int, mistakes: AppMistakes) {
        self.slot = slot
        self.home = home
        self.mistakes = mistakes
    }
}

/// What an app does wrong.
struct AppMistakes: OptionSet {
    let rawValue: Int
    static let reportsBeforeDeletion = AppMistakes(rawValue: 1)
    static let recordsAfterwards = AppMistakes(rawValue: 2)
    static let deletesWithoutSync = AppMistakes(rawValue: 4)
    static let sameUserIsNoChange = AppMistakes(rawValue: 8)
}
