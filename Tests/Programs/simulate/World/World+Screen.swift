import BrokerCore
import DBus
import Identity
@_spi(Extensions) import SharedDevice

/// The program that shows warnings and the lock. It has one request at the broker at a time, and sends the next one
/// after each response.
struct SimulatedScreen {
    var isRunning = false
    /// Whether it has stopped asking.
    var isHung = false
    /// Whether it keeps showing the same, whatever the broker says.
    var lags = false
    var shows = ScreenContent.nothing
    var revision: UInt64?
}

extension World {
    /// What a person does at the screen, or a fault of its program.
    enum ScreenDeed: Hashable {
        case start, kill, hang, lag
        /// The device stays unused until its screen is locked.
        case idles
        /// A person types a name and a password, perhaps after the device was not used for a while.
        case types(person: Int, isRight: Bool, afterIdling: Bool)
    }

    func atScreen(_ deed: ScreenDeed) {
        switch deed {
        case .start:
            guard isBusUp, !screen.isRunning || screen.isHung || screen.lags else { return }
            endScreen()
            connect(Self.screen)
            screen = SimulatedScreen(isRunning: true)
            askForScreen()
        case .kill: endScreen()
        case .hang: screen.isHung = true
        case .lag: screen.lags = true
        case .types(let person, let isRight, let afterIdling):
            if afterIdling { idle() }
            guard screen.isRunning, isBusUp else { return }
            let credentials = SignInRequest(
                username: Setting.people[person],
                password: Secret(isRight ? Setting.rightPassword : Setting.wrongPassword)
            )
            sendFromScreen(.signIn(credentials, scopes: [], patience: .seconds(20), label: nil))
        case .idles: idle()
        }
    }

    private func idle() {
        progress(20)
        advance(by: .seconds(310))
    }

    func endScreen() {
        guard screen.isRunning else { return }
        screen = SimulatedScreen()
        slots[Self.screen].toBroker.append(.left(slots[Self.screen].connection))
        oracle.left(slots[Self.screen].connection)
        unanswered = unanswered.filter { $0.value != Self.screen }
    }

    private func sendFromScreen(_ call: Request.Call) {
        send(Self.screen, call, claiming: BrokerProtocol.screenIdentifier)
        slots[Self.screen].toApp = []
    }

    private func askForScreen() {
        sendFromScreen(.screen(shows: screen.shows, known: screen.revision, patience: .seconds(60)))
    }

    /// The screen's program reads a response.
    func screenHears(_ result: Result<BrokerProtocol.Fields, Refusal>) {
        guard screen.isRunning, !screen.isHung else { return }
        // The response to a sign-in changes nothing: the next content follows.
        guard case .success(let fields) = result, let answer = try? ScreenAnswer(fields) else { return }
        if !screen.lags { screen.shows = answer.show }
        screen.revision = answer.revision
        askForScreen()
    }

    /// Time passes only when the screen's messages have arrived, which takes milliseconds.
    func deliverFromScreen() {
        while broker != nil, isBusUp, violation == nil, !slots[Self.screen].toBroker.isEmpty {
            brokerReads(Self.screen)
        }
    }
}
