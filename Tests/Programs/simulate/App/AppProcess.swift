@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

/// A process of an app that uses the library `SharedDevice`: `SessionKeeper` calls the broker and keeps the record;
/// `AccountFollower` shows and hides the account and cleans up. The decisions about a record are the library's own
/// `SessionRecord` and `CleanupPlan`. The order of the calls is repeated here because the library spreads it over
/// tasks.
struct AppProcess {
    enum Purpose {
        case change
        /// To check that the session of a token is still open.
        case token(DeviceSession)
    }

    /// The current task of the keeper, which has one at a time.
    enum Keeper {
        case free
        case asks(UInt64, Purpose)
        /// Sends these receipts one by one. Then it asks for the purpose or, without a purpose, completes a cleanup.
        case reports(UInt64, [SessionRecord.Receipt], Purpose?)
    }

    enum Follower {
        case waits
        case cleans(CleanupPlan, [SessionRecord.Session])
        /// The steps are finished, and the record must be updated.
        case isClean([SessionRecord.Session])
        /// The receipts are in flight.
        case reports
    }

    enum Message {
        case broadcast
        case reply(UInt64, Result<BrokerProtocol.Fields, Refusal>)
        /// The call has failed without a response.
        case failed(UInt64)
        /// The connection was lost and re-established with another name.
        case reconnected
    }

    let slot: Int
    let home: Int
    var keeper = Keeper.free
    var follower = Follower.waits
    /// The session whose data it shows and may store.
    var shown: UInt64?
    var told: DeviceSession?
    var held: [SessionRecord.Session] = []
    /// The ended sessions that it still has to clean up.
    var stale: [SessionRecord.Session] = []
    /// The broker's marks for these sessions.
    var staleMarks: [UInt64: UInt64] = [:]
    /// The sessions whose receipts are in flight.
    var unconfirmed: [SessionRecord.Session] = []
    /// The journal of a failed attempt.
    var journal: CleanupJournal?
    var lastEpoch: UInt64 = 0
    var isStrict: Bool?
    var mustAsk = true
    var isFirst = true
    var retryAt: Duration?
    var pause = Duration.seconds(1)
    var heard = 0
    /// The response to the last receipt, and the number of broadcasts received before the receipt was sent.
    var fresh: SessionAnswer?
    var reportedAfter = 0
    /// Pending token requests and sign-ins, with the number of broadcasts received before each.
    var tokens: [UInt64: Int] = [:]
    /// Sessions that came with a token and are queued for the keeper.
    var arrived: [(session: DeviceSession, isDoubtful: Bool)] = []
    /// How many of the next cleanup steps fail.
    var failures = 0
    var mistakes: AppMistakes = []

    init(slot: Int, home: Int, mistakes: AppMistakes) {
        self.slot = slot
        self.home = home
        self.mistakes = mistakes
    }
}

struct AppMistakes: OptionSet {
    let rawValue: Int
    static let reportsBeforeDeletion = AppMistakes(rawValue: 1)
    static let recordsAfterwards = AppMistakes(rawValue: 2)
    static let deletesWithoutSync = AppMistakes(rawValue: 4)
    static let sameUserIsNoChange = AppMistakes(rawValue: 8)
}
