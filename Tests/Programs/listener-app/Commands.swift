import Basics
import DBus
import FoundationEssentials
import NotifyCenter
import SharedDevice
import Synchronization

/// Executes the commands on standard input. Each response is an event of the command's name, with the code of a
/// refusal.
///
/// - `signin NAME PASSWORD…`
/// - `signout [IDENTIFIER]`: that account, or the account on the screen
/// - `signout-browser MILLISECONDS`: with the browser's session and this deadline
/// - `work`: stores another file
/// - `token [IDENTIFIER]`, `tokens COUNT`: one token of an account, or several of the account on the screen, one after
///   the other, of which every second one is new
/// - `current [COUNT]`: the responses to this number of overlapping requests
/// - `watch`: from now on, asks at once after each broadcast; each response is an event `asked`
/// - `device`: the mode, and the number of ignored broadcasts
/// - `go`: lets the cleanup begin
/// - `quit`
final class Commands: Sendable {
    let application: SharedDeviceApplication
    let desk: Desk
    let gate: Gate
    let journal: Journal
    let bus: Bus
    private let watching = Locked<NotificationObservation?>(nil)

    init(application: SharedDeviceApplication, desk: Desk, gate: Gate, journal: Journal, bus: Bus) {
        self.application = application
        self.desk = desk
        self.gate = gate
        self.journal = journal
        self.bus = bus
    }

    func obey(_ words: [String]) async {
        let argument = words.dropFirst().first
        switch words.first {
        case "signin":
            let password = words.dropFirst(2).joined(separator: " ")
            var parameters = InteractiveTokenParameters(scopes: [], loginHint: argument) { hint in
                Credentials(username: hint ?? "", password: password)
            }
            parameters.patience = .milliseconds(200)
            await answer("signin") { event throws(SharedDeviceError) in
                event.account = try await application.acquireToken(with: parameters).account.username
            }
        case "signout":
            await answer("signout") { event throws(SharedDeviceError) in
                try await application.signout(with: account(argument))
            }
        case "signout-browser":
            var parameters = SignoutParameters(signoutFromBrowser: true)
            parameters.browserDeadline = .milliseconds(Int(argument ?? "") ?? 0)
            await answer("signout-browser") { [parameters] event throws(SharedDeviceError) in
                let result = try await application.signout(with: account(nil), signoutParameters: parameters)
                event.detail = "\(result.browser)"
            }
        case "work":
            let account = desk.account
            try? account.map { try desk.work("more", for: $0, desk.epoch(of: $0)) }
            journal.note(Event("work", detail: account?.username))
        case "token": await token(account(argument), refresh: false)
        case "tokens":
            let account = account(nil)
            journal.note(Event("tokens-begin", detail: account.username))
            for number in 0..<(UInt64(argument ?? "") ?? 1) {
                desk.request(number) { await self.token(account, refresh: number % 2 == 1) }
                try? await Task.sleep(for: .microseconds(500))
            }
            await desk.finishRequests()
            journal.note(Event("tokens"))
        case "current":
            await withDiscardingTaskGroup { group in
                for _ in 0..<(Int(argument ?? "") ?? 1) { group.addTask { await self.current("current") } }
            }
            journal.note(Event("currents"))
        case "watch": await watch()
        case "device":
            let information = await application.getDeviceInformation()
            var event = Event("device", detail: "\(information.deviceMode) \(application.ignoredBroadcasts)")
            event.code = information.problem.map { "\($0.code)" }
            journal.note(event)
        case "go": gate.open()
        default: journal.note(Event("misunderstood"))
        }
    }

    private func account(_ identifier: String?) -> Account {
        identifier.map { Account(identifier: $0, username: $0) } ?? desk.account
            ?? Account(identifier: "nobody.here", username: "nobody")
    }

    private func token(_ account: Account, refresh: Bool) async {
        await answer("token") { event throws(SharedDeviceError) in
            let parameters = SilentTokenParameters(scopes: [], account: account, forceRefresh: refresh)
            let result = try await application.acquireTokenSilent(with: parameters)
            event.account = result.account.username
            event.detail = result.accessToken
        }
    }

    private func current(_ name: String) async {
        await answer(name) { event throws(SharedDeviceError) in
            let answer = try await application.getCurrentAccount()
            event.account = answer.current?.username
            event.previous = answer.previous.map { [$0.username] } ?? []
        }
    }

    private func watch() async {
        let center = DarwinNotifyCenter(bus: bus)
        let observation = try? await center.observe(.sharedModeCurrentAccountChanged, delivery: .immediate) { _ in
            Task { await self.current("asked") }
        }
        watching.withLock { $0 = observation }
        journal.note(Event("watch"))
    }

    private func answer(_ name: String, _ body: (inout Event) async throws(SharedDeviceError) -> Void) async {
        var event = Event(name)
        do throws(SharedDeviceError) {
            try await body(&event)
        } catch {
            event.code = "\(error.code)"
            event.detail = error.message
        }
        journal.note(event)
    }
}

/// Blocks a cleanup until it is opened.
struct Gate: Sendable {
    private let stream: AsyncStream<Void>
    private let continuation: AsyncStream<Void>.Continuation

    init(isOpen: Bool) {
        (stream, continuation) = AsyncStream.makeStream()
        if isOpen { open() }
    }

    func open() { continuation.finish() }
    func pass() async { for await _ in stream {} }
}
