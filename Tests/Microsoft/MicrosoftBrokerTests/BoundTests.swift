import DBusTransport
import DeviceConfiguration
import Foundation
import NotifyCenterTestKit
import SharedDevice
import StrictJSON
import Synchronization
import Testing

@testable import MicrosoftBroker

/// A step that takes, the first time, until it is told to end.
private final class SlowStep: Sendable {
    private let begun = AsyncStream<Void>.makeStream()
    private let ended = AsyncStream<Void>.makeStream()

    func pass() async {
        begun.continuation.yield()
        for await _ in ended.stream { return }
    }

    func isBegun() async { for await _ in begun.stream { return } }

    func end() { ended.continuation.finish() }
}

/// How long, how many, and whether at all.
@Suite("What bounds the bridge to Microsoft's clients")
struct BoundTests {
    /// A program in the place of shared-device-sign-in, on a bus that it does not call.
    private func program(_ path: String) -> SignInProgram { SignInProgram(path, bus: .address("unix:path=/nowhere")) }

    private static let cancelled = #"echo '{"code": "user_canceled", "message": "no"}'; exit 1"#

    @Test("a prompt that takes too long is ended, and is told from one that ended by itself")
    func patience() async throws {
        let directory = try TemporaryDirectory("patience")
        let (ready, mark) = (directory.path + "/ready", directory.path + "/ended")
        func outcome(_ trap: String, _ grace: Duration) async throws -> Prompter.Outcome {
            let script = "trap '\(trap)' TERM; touch \(ready); while :; do sleep 0.02; done"
            var program = program(try directory.writeScript("slow", script))
            program.grace = grace
            let start = Prompter.program(program) {
                while !FileManager.default.fileExists(atPath: ready) {
                    try await Task.sleep(for: .milliseconds(20))
                }
            }
            return await start([])
        }
        #expect(try await outcome("touch \(mark); exit 1", .seconds(60)) == .expired)
        #expect(FileManager.default.fileExists(atPath: mark))
        // One that does not end when it is asked to holds up nobody for ever.
        try FileManager.default.removeItem(atPath: ready)
        #expect(try await outcome("", .milliseconds(20)) == .expired)
        let start = Prompter.program(program(try directory.writeScript("quick", Self.cancelled)))
        guard case .failed(let error) = await start([]) else { throw NotExpected() }
        #expect(error.code == .userCanceled)
    }

    private struct NotExpected: Error {}

    @Test(
        "a prompt asks for the scopes that the client wants a token for, and once more without them only where these are refused",
        arguments: [
            (code: SharedDeviceError.Code.scopesDeclined, starts: 2), (.providerMisconfigured, 1), (.userCanceled, 1),
        ]
    )
    func scopes(code: SharedDeviceError.Code, starts: Int) async throws {
        let directory = try TemporaryDirectory("scopes")
        let calls = directory.path + "/calls"
        let script = """
            echo "$*" >>\(calls)
            case "$*" in *refused*) echo '{"code": "\(code)", "message": "no"}'; exit 78; esac
            echo '{"username": "ada", "epoch": 7}'
            """
        var program = program(try directory.writeScript("prompt", script))
        program.showsPage = true
        let start = Prompter.program(program)
        let outcome = await start(["openid", "refused"])
        #expect((outcome == .signedIn) == (starts == 2))
        let arguments = "--json --bus unix:path=/nowhere --wait 15.0"
        let lines = ["\(arguments) --scope=openid --scope=refused --page", "\(arguments) --page"]
        #expect(
            try String(contentsOfFile: calls, encoding: .utf8) == lines.prefix(starts).map { $0 + "\n" }.joined()
        )
    }

    @Test("nobody who signs in within the time: the client reads 8, and that it may try again")
    func expired() async throws {
        let device = try await Device()
        let asked = Locked<[String]>([])
        let broker = MicrosoftBroker(
            MicrosoftBroker.Parts(
                connection: try DBusConnection.open(device.bus.bus),
                application: device.app,
                prompt: nil,
                removeSecrets: { "" }
            ),
            prompter: Prompter { scopes in
                asked.withLock { $0 = scopes }
                return .expired
            }
        )
        var rights = TokenRights()
        rights.scopes = ["openid", "profile"]
        rights.microsoftClientIdentifiers = [Device.client]
        rights.microsoftScopes = ["https://graph.microsoft.com/.default": ["openid", "profile"]]
        broker.use(rights)
        let answer = await broker.answer(.acquireTokenInteractively, correlation: "c", Device.parameters().text)
        #expect(answer.status == 8 && answer.context.contains("ten minutes"), "\(answer.text)")
        // In the provider's words, and not in the client's.
        #expect(asked.withLock { $0 } == ["openid", "profile"])
    }

    @Test("a client that dies while a person is asked gives its places back, and the last one takes the prompt along")
    func deadClient() async throws {
        let device = try await Device()
        let marks = "\(device.directory.path)/marks"
        let program = try device.directory.writeScript("prompt", "echo started >> \(marks); exec sleep 300")
        let bridge = try await device.bridge(["--sign-in", program], ["DISPLAY": ":7"])
        defer { bridge.kill() }
        let client = try DBusConnection.open(device.bus.bus)
        let refused = Locked(0)
        // One more than there is room for: the one that is refused tells that all the others wait.
        for number in 0...BrokerContract.interactiveRequests {
            let call = try DBusMessage.methodCall(
                destination: BrokerContract.busName,
                path: BrokerContract.path,
                interface: BrokerContract.interface,
                member: "acquireTokenInteractively",
                arguments: [.string("0.0"), .string("c-\(number)"), .string(Device.parameters().text)]
            )
            client.call(call, timeout: nil) { result in
                guard case .success(let values) = result else { return }
                if values.first?.stringValue?.contains("too many sign-ins") == true { refused.withLock { $0 += 1 } }
            }
        }
        #expect(try await eventually { refused.withLock { $0 } == 1 })
        func starts() -> Int {
            ((try? String(contentsOfFile: marks, encoding: .utf8)) ?? "").split(separator: "\n").count
        }
        #expect(try await eventually { starts() == 1 })
        client.close()
        let next = Task { () async throws -> Double? in
            while true {
                let answer = try await device.call("acquireTokenInteractively", Device.parameters(), correlation: "n")
                if answer.status != 15 { return answer.status }
            }
        }
        #expect(try await eventually { starts() == 2 })
        _ = try await device.call("cancelInteractiveFlow", .object([:]), correlation: "n")
        #expect(try await next.value == 8)
    }

    /// Calls again where there is no place, a few times: whoever looks whether all are taken has one for a moment.
    private func admitted(_ method: String, _ request: JSONValue, on device: Device) async throws -> JSONValue {
        for _ in 0..<20 {
            let answer = try await device.call(method, request)
            if answer.status != 15 { return answer }
        }
        return try await device.call(method, request)
    }

    @Test("32 requests are under way at a time; the next one is told to come again, and does")
    func requests() async throws {
        // All have to be under way before the first is over, which the device's broker does not answer.
        let own = OwnThread()
        try await withTaskExecutorPreference(own) { try await judgeRequests(on: own) }
    }

    private func judgeRequests(on own: OwnThread) async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        let version: JSONValue = .object(["msalCppVersion": .string("1")])
        device.broker.suspend()
        defer { device.broker.resume() }
        // Each waits for the device's broker, which does not answer.
        let waiting = (1...BrokerContract.requests).map { _ in
            Task(executorPreference: own) { try await admitted("getAccounts", .object([:]), on: device)["accounts"] }
        }
        #expect(try await eventually { try await device.call("getLinuxBrokerVersion", version).status == 15 })
        device.broker.resume()
        for task in waiting { #expect(try await task.value == .array([])) }
        #expect(try await device.call("getLinuxBrokerVersion", version)["linuxBrokerVersion"] != nil)
    }

    @Test(
        "a change of the configuration while the name is taken or given back counts in the end",
        arguments: [true, false]
    )
    func name(isWanted: Bool) async throws {
        let isOwned = Locked(isWanted)
        let slow = SlowStep()
        // The change before is under way when the next one comes, and reaches the bus after it.
        let name = KeptName { () throws(DBusError) in
            if !isWanted { await slow.pass() }
            isOwned.withLock { $0 = true }
        } give: { () throws(DBusError) in
            if isWanted { await slow.pass() }
            isOwned.withLock { $0 = false }
        }
        let before = Task { try await name.want(!isWanted) }
        await slow.isBegun()
        try await name.want(isWanted)
        slow.end()
        try await before.value
        #expect(isOwned.withLock { $0 } == isWanted)
        #expect(name.isWanted == isWanted)
    }

    @Test("another program that has taken the name keeps nobody's debts; when it is gone, clients are served again")
    func takenName() async throws {
        let device = try await Device()
        let bridge = try await device.bridge(["--retry-pause", "0.2"])
        defer { bridge.kill() }
        let ada = try await device.signIn("ada")
        #expect(try await device.call("getAccounts", .object([:]))["accounts"]?.array?.count == 1)
        try device.configure(microsoftBroker: false)
        #expect(try await eventually { bridge.errorText.contains("served no more") })
        let other = try DBusConnection.open(device.bus.bus)
        try await other.requestName(BrokerContract.busName)
        try device.configure(microsoftBroker: true)
        #expect(try await eventually { bridge.errorText.contains("tried again") })
        let session = try await device.app.signout(with: ada).session
        #expect(try await device.hasCleanedUp(after: session))
        try await other.releaseName(BrokerContract.busName)
        #expect(try await eventually { bridge.errorText.contains("served again") })
        #expect(try await device.call("getAccounts", .object([:]))["accounts"] == .array([]))
    }

    @Test("a program that waits for the name gets it at a cleanup, and keeps no receipt away")
    func queuedName() async throws {
        let device = try await Device()
        let bridge = try await device.bridge(["--retry-pause", "0.2"])
        defer { bridge.kill() }
        let other = try DBusConnection.open(device.bus.bus)
        try await other.requestName(BrokerContract.busName, options: [])
        let ada = try await device.signIn("ada")
        #expect(try await device.call("getAccounts", .object([:]))["accounts"]?.array?.count == 1)
        let session = try await device.app.signout(with: ada).session
        #expect(try await device.hasCleanedUp(after: session))
        #expect(try await eventually { bridge.errorText.contains("tried again") })
        try await other.releaseName(BrokerContract.busName)
        #expect(try await eventually { bridge.errorText.contains("served again") })
        #expect(try await device.call("getAccounts", .object([:]))["accounts"] == .array([]))
    }

    @Test("who waits for a token while the configuration comes not to want clients any more gets none")
    func unwantedMeanwhile() async throws {
        let own = OwnThread()
        try await withTaskExecutorPreference(own) { try await judgeUnwantedMeanwhile(on: own) }
    }

    private func judgeUnwantedMeanwhile(on own: OwnThread) async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        try await device.signIn("ada")
        device.broker.suspend()
        defer { device.broker.resume() }
        let token = Task(executorPreference: own) {
            try await admitted("acquireTokenSilently", Device.parameters(), on: device)
        }
        let others = (2...BrokerContract.requests).map { _ in
            Task(executorPreference: own) { try await admitted("getAccounts", .object([:]), on: device) }
        }
        let version: JSONValue = .object(["msalCppVersion": .string("1")])
        // All are under way.
        #expect(try await eventually { try await device.call("getLinuxBrokerVersion", version).status == 15 })
        try device.configure(microsoftBroker: false)
        #expect(try await eventually { bridge.errorText.contains("served no more") })
        device.broker.resume()
        for task in others { _ = await task.result }
        let answer = try await token.value
        #expect(answer.status != nil && answer.context.contains("does not serve"), "\(answer.text)")
    }

    @Test("where the configuration wants it no more it serves nobody, but pays its debts; and then it serves again")
    func unwanted() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        let ada = try await device.signIn("ada")
        #expect(try await device.call("getAccounts", .object([:]))["accounts"]?.array?.count == 1)
        let connection = try DBusConnection.open(device.bus.bus)
        func isServed() async throws -> Bool { try await connection.owner(of: BrokerContract.busName) != nil }
        try device.configure(microsoftBroker: false)
        #expect(try await eventually { try await !isServed() })
        await #expect(throws: DBusError.self) { try await device.call("getAccounts", .object([:])) }
        let session = try await device.app.signout(with: ada).session
        #expect(try await device.hasCleanedUp(after: session))
        #expect(try await !isServed())
        #expect(bridge.isRunning)
        try device.configure(microsoftBroker: true)
        #expect(try await eventually { try await isServed() })
        #expect(try await device.call("getAccounts", .object([:]))["accounts"] == .array([]))
    }
}
