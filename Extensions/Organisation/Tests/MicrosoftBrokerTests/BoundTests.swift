import Basics
import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@testable import MicrosoftBroker

@Suite("The limits of the bridge to Microsoft's clients")
struct BoundTests {
    /// A substitute for shared-device-sign-in, with a bus that it does not call.
    private func program(_ path: String) -> SignInProgram { SignInProgram(path, bus: .address("unix:path=/nowhere")) }

    private static let cancelled = #"echo '{"code": "user_canceled", "message": "no"}'; exit 1"#

    @Test("a prompt that takes too long is ended and reported as expired")
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
            return await start(Prompter.Wish(scopes: []))
        }
        #expect(try await outcome("touch \(mark); exit 1", .seconds(60)) == .expired)
        #expect(FileManager.default.fileExists(atPath: mark))
        // A prompt that ignores SIGTERM must not block the bridge.
        try FileManager.default.removeItem(atPath: ready)
        #expect(try await outcome("", .milliseconds(20)) == .expired)
        let start = Prompter.program(program(try directory.writeScript("quick", Self.cancelled)))
        guard case .failed(let error) = await start(Prompter.Wish(scopes: [])) else { throw NotExpected() }
        #expect(error.code == .userCanceled)
    }

    private struct NotExpected: Error {}

    @Test(
        "a prompt retries without the client's scopes only if they are refused",
        arguments: [
            (code: SharedDeviceError.Code.scopesDeclined, starts: 2), (.providerMisconfigured, 1), (.userCanceled, 1),
        ]
    )
    func scopes(code: SharedDeviceError.Code, starts: Int) async throws {
        let directory = try TemporaryDirectory("scopes")
        let calls = directory.path + "/calls"
        let script = """
            echo "$* $SHARED_DEVICE_CLAIMS" >>\(calls)
            case "$*" in *refused*) echo '{"code": "\(code)", "message": "no"}'; exit 78; esac
            echo '{"username": "ada", "epoch": 7}'
            """
        var program = program(try directory.writeScript("prompt", script))
        program.showsPage = true
        let start = Prompter.program(program)
        let outcome = await start(Prompter.Wish(scopes: ["openid", "refused"], claims: "{}"))
        #expect((outcome == .signedIn) == (starts == 2))
        let arguments = "--json --bus unix:path=/nowhere --wait 15.0"
        let end = "--page --again {}"
        let lines = ["\(arguments) --scope=openid --scope=refused \(end)", "\(arguments) \(end)"]
        #expect(try String(contentsOfFile: calls, encoding: .utf8) == lines.prefix(starts).map { $0 + "\n" }.joined())
    }

    @Test("an expired sign-in has status 8, and the client may try again")
    func expired() async throws {
        let device = try await Device()
        let asked = Locked<[String]>([])
        let broker = MicrosoftBroker(
            connection: try DBusConnection.open(device.bus.bus),
            application: device.app,
            prompter: Prompter { wish in
                asked.withLock { $0 = wish.scopes }
                return .expired
            },
            removeSecrets: { "" }
        )
        var rights = TokenRights()
        rights.scopes = ["openid", "profile"]
        rights.microsoftClientIdentifiers = [Device.client]
        rights.microsoftScopes = [Device.scope: ["openid", "profile"]]
        broker.use(rights)
        let answer = await broker.answer(.acquireTokenInteractively, correlation: "c", Device.parameters().text)
        #expect(answer.status == 8 && answer.context.contains("ten minutes"), "\(answer.text)")
        // The provider's scopes, not the client's.
        #expect(asked.withLock { $0 } == ["openid", "profile"])
    }

    @Test("a dead client frees its places, and the last one ends the prompt")
    func deadClient() async throws {
        let device = try await Device()
        let marks = "\(device.directory.path)/marks"
        try await device.serve(prompt: "echo started >> \(marks); exec sleep 300")
        let client = try DBusConnection.open(device.bus.bus)
        let refused = Locked(0)
        // One more than the limit: its refusal shows that all others are waiting.
        for number in 0...BrokerContract.interactiveRequests {
            let call = try bridgeCall("acquireTokenInteractively", Device.parameters().text, correlation: "c-\(number)")
            client.call(call, timeout: nil) { result in
                guard case .success(let values) = result else { return }
                if values.first?.stringValue?.contains("too many sign-ins") == true { refused.withLock { $0 += 1 } }
            }
        }
        try await eventually("one refusal") { refused.withLock { $0 } == 1 }
        func starts() -> Int {
            ((try? String(contentsOfFile: marks, encoding: .utf8)) ?? "").split(separator: "\n").count
        }
        try await eventually("one prompt") { starts() == 1 }
        client.close()
        let next = Task { () async throws -> Double? in
            while true {
                let answer = try await device.call("acquireTokenInteractively", Device.parameters(), correlation: "n")
                if answer.status != 15 { return answer.status }
            }
        }
        try await eventually("the next prompt") { starts() == 2 }
        _ = try await device.call("cancelInteractiveFlow", .object([:]), correlation: "n")
        #expect(try await next.value == 8)
    }

    /// Fills all places of a bridge with requests that wait for the suspended broker, and returns their tasks.
    private func fill(
        _ device: Device,
        with requests: [(String, JSONValue)],
        on own: OwnThread
    ) async throws -> [Task<JSONValue, any Error>] {
        device.broker.suspend()
        let tasks = requests.map { method, request in
            Task(executorPreference: own) { () async throws -> JSONValue in
                // The check below briefly takes a place itself.
                for _ in 0..<20 {
                    let answer = try await device.call(method, request)
                    if answer.status != 15 { return answer }
                }
                return try await device.call(method, request)
            }
        }
        try await eventually("all places are taken") { try await version(of: device).status == 15 }
        return tasks
    }

    private func version(of device: Device) async throws -> JSONValue {
        try await device.call("getLinuxBrokerVersion", .object(["msalCppVersion": .string("1")]))
    }

    @Test("at most 32 requests are in flight; a further one is told to retry")
    func requests() async throws {
        // All requests must be in flight before the first ends, which the suspended broker ensures.
        let own = OwnThread()
        try await withTaskExecutorPreference(own) { try await judgeRequests(on: own) }
    }

    private func judgeRequests(on own: OwnThread) async throws {
        let device = try await Device.serving()
        defer { device.broker.resume() }
        let requests = Array(repeating: ("getAccounts", JSONValue.object([:])), count: BrokerContract.requests)
        let waiting = try await fill(device, with: requests, on: own)
        device.broker.resume()
        for task in waiting { #expect(try await task.value["accounts"] == .array([])) }
        #expect(try await version(of: device)["linuxBrokerVersion"] != nil)
    }

    @Test("a client that waits while the bridge is disabled gets no token")
    func unwantedMeanwhile() async throws {
        let own = OwnThread()
        try await withTaskExecutorPreference(own) { try await judgeUnwantedMeanwhile(on: own) }
    }

    private func judgeUnwantedMeanwhile(on own: OwnThread) async throws {
        let device = try await Device.serving()
        try await device.signIn("ada")
        defer { device.broker.resume() }
        let others = Array(repeating: ("getAccounts", JSONValue.object([:])), count: BrokerContract.requests - 1)
        let requests = [("acquireTokenSilently", Device.parameters())] + others
        let waiting = try await fill(device, with: requests, on: own)
        try device.configure(microsoftBroker: false)
        try await device.says("no longer served")
        device.broker.resume()
        for task in waiting.dropFirst() { _ = await task.result }
        let answer = try await waiting[0].value
        #expect(answer.status != nil && answer.context.contains("does not serve"), "\(answer.text)")
    }

    @Test("the last configuration wins while the name is requested or released", arguments: [true, false])
    func name(isWanted: Bool) async throws {
        let isOwned = Locked(isWanted)
        let (begun, begin) = AsyncStream.makeStream(of: Void.self)
        let (gate, open) = AsyncStream.makeStream(of: Void.self)
        let wait: @Sendable () async -> Void = {
            begin.finish()
            for await _ in gate {}
        }
        // The first change is in flight when the second arrives, and reaches the bus after it.
        let name = KeptName { () throws(DBusError) in
            if !isWanted { await wait() }
            isOwned.withLock { $0 = true }
        } give: { () throws(DBusError) in
            if isWanted { await wait() }
            isOwned.withLock { $0 = false }
        }
        let before = Task { try await name.want(!isWanted) }
        for await _ in begun {}
        try await name.want(isWanted)
        open.finish()
        try await before.value
        #expect(isOwned.withLock { $0 } == isWanted && name.isWanted == isWanted)
    }

    @Test("a bridge that is disabled or lacks its name cleans up, and serves again later")
    func unwanted() async throws {
        let device = try await Device.serving(["--retry-pause", "0.2"])
        let other = try DBusConnection.open(device.bus.bus)
        func isServed() async throws -> Bool { try await other.owner(of: BrokerContract.busName) != nil }
        func signIn() async throws -> Account {
            let ada = try await device.signIn("ada")
            #expect(try await device.accounts()?.array?.count == 1)
            try device.configure(microsoftBroker: false)
            try await eventually("the name is released") { try await !isServed() }
            return ada
        }
        let first = try await signIn()
        await #expect(throws: DBusError.self) { try await device.accounts() }
        try await device.signOut(first)
        #expect(try await !isServed() && device.isServing)
        try device.configure(microsoftBroker: true)
        try await eventually("the name is regained") { try await isServed() }
        #expect(try await device.accounts() == .array([]))
        // Another program has the name.
        let second = try await signIn()
        try await other.requestName(BrokerContract.busName)
        try device.configure(microsoftBroker: true)
        try await device.says("tried again")
        try await device.signOut(second)
        try await other.releaseName(BrokerContract.busName)
        try await eventually("the name is regained again") { try await isServed() }
        #expect(try await device.accounts() == .array([]))
    }

    @Test("a program that queues for the name gets it at a cleanup without a lost receipt")
    func queuedName() async throws {
        let device = try await Device.serving(["--retry-pause", "0.2"])
        let other = try DBusConnection.open(device.bus.bus)
        try await other.requestName(BrokerContract.busName, options: [])
        let ada = try await device.signIn("ada")
        #expect(try await device.accounts()?.array?.count == 1)
        try await device.signOut(ada)
        try await device.says("tried again")
        try await other.releaseName(BrokerContract.busName)
        try await device.says("served again")
        #expect(try await device.accounts() == .array([]))
    }
}
