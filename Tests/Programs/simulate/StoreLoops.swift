import Basics
import BrokerCore
import DBus
import DeviceConfiguration
import DeviceStorage
import Foundation
import Glibc
import Identity
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

/// Bypasses stdio, whose buffered lines would be lost when the process is killed.
func report(_ text: String) { guard writeAll("\(text)\n", to: STDOUT_FILENO) == 0 else { exit(1) } }

/// Signs one account in and out of the store in a directory for ever, and prints each epoch once it is committed. A
/// test kills this process at a time of its choice.
func commitForEver(in directory: String) throws {
    let store = try DeviceStore(database: DeviceDatabase(directory: directory, firstEpoch: 0))
    var state = try store.load(at: .now).device
    func commit(_ account: Account?) throws {
        state = state.next(mode: .shared, account: account)
        var batch = Batch(number: state.epoch)
        batch.device = state
        try store.commit(batch)
        report("\(state.epoch)")
    }
    if state.mode == .personal { try commit(nil) }
    while true {
        try commit(state.account == nil ? Account(identifier: "torture.tenant", username: "torture-user") : nil)
    }
}

// MARK: The ledger

/// A broker without a bus: its state, and a store that commits each batch before the next event.
private final class LoopDevice {
    private var state: BrokerState
    private let store: DeviceStore
    private var events: [Event] = []
    private var answers: [UInt64: Result<BrokerProtocol.Fields, Refusal>] = [:]
    private var lastNumber: UInt64 = 0

    init(_ directory: String) throws {
        store = try DeviceStore(database: DeviceDatabase(directory: directory, firstEpoch: 0))
        state = BrokerState(try store.load(at: .now), at: .now)
        for app in ["a", "b", "c"] {
            let credentials = AppCredentials(user: 1000, executable: "/usr/bin/\(app)")
            feed(.arrived(Caller(connection: app, credentials: credentials, process: nil, isAdministrator: true)))
        }
        var policy = DevicePolicy()
        policy.mode = .shared
        policy.passwordSignIn = true
        feed(.configured(policy))
    }

    var account: Account? { state.device.account }

    @discardableResult
    func ask(_ app: String, _ call: Request.Call) throws -> BrokerProtocol.Fields {
        lastNumber += 1
        feed(.request(Request(number: lastNumber, connection: app, claimed: app, call: call, method: "test")))
        guard let answer = answers.removeValue(forKey: lastNumber) else { throw Refusal.failed("no answer") }
        return try answer.get()
    }

    private func feed(_ event: Event) {
        events.append(event)
        while !events.isEmpty {
            for effect in state.reduce(events.removeFirst(), at: .now) { perform(effect) }
        }
    }

    /// Every password is accepted.
    private func perform(_ effect: Effect) {
        switch effect {
        case .reply(let number, let result): answers[number] = result.map(\.fields)
        case .noteState(let state): store.notes.note(state, at: Date())
        case .commit(let batch):
            do {
                try store.commit(batch)
                events.append(.committed(batch.number))
            } catch {
                events.append(.commitFailed(batch, "\(error)"))
            }
        case .authenticate(let number, let credentials):
            let name = credentials.username ?? ""
            let account = Account(identifier: "\(name).t", username: name)
            events.append(.authenticated(number, .success(AuthenticatedIdentity(account: account))))
        case .issueToken(let number, _, let scopes):
            let token = AccessToken(value: "token", scopes: scopes, expiresAt: Date(timeIntervalSinceNow: 3600))
            events.append(.issued(number, .success(token)))
        default: break
        }
    }
}

/// Signs in and out for ever with three apps, which ask for the account and clean up. Prints each response: `held
/// NUMBER APP`, `out NUMBER`, `finished NUMBER APP`.
func keepLedger(in directory: String) throws {
    let device = try LoopDevice(directory)
    func session(_ app: String) throws -> SessionAnswer { try SessionAnswer(device.ask(app, .currentAccount)) }
    while true {
        if device.account == nil {
            let credentials = SignInRequest(username: "torture", password: Secret("p"))
            let call = Request.Call.signIn(credentials, scopes: [], patience: .zero, label: nil)
            report("held \(try device.ask("a", call)["epoch"]?.unsignedValue ?? 0) a")
        }
        for app in ["a", "b", "c"] { report("held \(try session(app).session.epoch) \(app)") }
        let fields = try device.ask("a", .signOut(identifier: "torture.t", session: nil))
        let ended = fields["session"]?.unsignedValue ?? 0
        report("out \(ended)")
        // The third app cleans up after every other session only.
        for app in ended.isMultiple(of: 4) ? ["a", "b", "c"] : ["a", "b"] {
            for owed in try session(app).owed {
                try device.ask(app, .report(.finished, session: owed.epoch, detail: nil))
                report("finished \(owed.epoch) \(app)")
            }
        }
    }
}
