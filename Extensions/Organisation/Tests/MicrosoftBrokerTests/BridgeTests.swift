import Basics
import DBus
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@testable import MicrosoftBroker

@Suite("Microsoft's clients and the device's account, by real calls")
struct BridgeTests {
    @Test("a client sees the account, with all required members, only during a session")
    func accounts() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        let request: JSONValue = .object(["clientId": .string(Device.client), "redirectUri": .string("x")])
        #expect(try await device.call("getAccounts", request)["accounts"] == .array([]))
        let ada = try await device.signIn("ada")
        let account = try #require(try await device.call("getAccounts", request)["accounts"]?.array?.first)
        #expect(account["homeAccountId"]?.string == ada.identifier)
        #expect(account["localAccountId"]?.string.flatMap(UUID.init(uuidString:)) != nil)
        #expect(account["realm"]?.string == ada.tenantIdentifier)
        #expect(account["username"]?.string == "ada" && account["environment"]?.string == "login.windows.net")
        #expect(
            account["name"]?.string == "Ada" && account["givenName"] != nil && account["passwordExpiry"]?.number == 0
        )
        let session = try await device.app.signout(with: ada).session
        // During the cleanup the name has no owner for a moment; a client that calls then gets ServiceUnknown.
        #expect(try await device.hasCleanedUp(after: session))
        #expect(try await eventually { try await device.call("getAccounts", request)["accounts"] == .array([]) })
    }

    @Test("the bridge answers version, introspection and Ping")
    func version() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        let answer = try await device.call("getLinuxBrokerVersion", .object(["msalCppVersion": .string("1")]))
        #expect(answer["linuxBrokerVersion"]?.string == "3.0.1")
        let connection = try DBusConnection.open(device.bus.bus)
        for (interface, member) in [
            ("org.freedesktop.DBus.Peer", "Ping"), ("org.freedesktop.DBus.Introspectable", "Introspect"),
        ] {
            let message = try DBusMessage.methodCall(
                destination: BrokerContract.busName,
                path: BrokerContract.path,
                interface: interface,
                member: member
            )
            let reply = try await connection.call(message)
            #expect(member == "Ping" || reply.first?.stringValue?.contains("acquireTokenSilently") == true)
        }
    }

    @Test("each reason for a missing token has its status and text")
    func refusals() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        func status(_ request: JSONValue, _ method: String = "acquireTokenSilently") async throws -> (Double?, String) {
            let answer = try await device.call(method, request)
            return (answer.status, answer.context)
        }
        let nobody = try await status(Device.parameters())
        #expect(nobody.0 == 2)
        let ada = try await device.signIn("ada")
        let account = ClientAnswers.account(ada)
        let other: JSONValue = .object(["homeAccountId": .string("b.c")])
        #expect(try await status(Device.parameters(account: other)).0 == 16)
        let unknown = try await status(Device.parameters(client: UUID().uuidString))
        #expect(unknown.0 == 9 && unknown.1.contains("microsoftClientIDs"))
        let scope = try await status(Device.parameters(scopes: ["User.ReadWrite"]))
        #expect(scope.0 == 9 && scope.1.contains("User.ReadWrite"))
        #expect(try await status(Device.parameters(account: account, isBound: true)).0 == 9)
        // The device's own directory issues no ID token.
        let embedded = try await status(Device.parameters(account: account))
        #expect(embedded.0 == 9 && embedded.1.contains("ID token"))
        for method in ["acquirePrtSsoCookie", "generateSignedHttpRequest"] {
            let answer = try await status(.object(["account": account]), method)
            #expect(answer.0 == 9 && !answer.1.isEmpty, "\(method)")
        }
    }

    @Test("a malformed request gets a failure with a reason and never a D-Bus error")
    func malformed() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        let texts = [
            "", "{", "[]", #"{"a":1,"a":2}"#, #"{"authParameters":7}"#, #"{"clientId":7}"#,
            #"{"authParameters":{"clientId":"x","requestedScopes":"a"}}"#, #"{"account":{"username":"ada"}}"#,
            String(repeating: "[", count: 20), "\"" + String(repeating: "x", count: 70_000) + "\"",
        ]
        for text in texts {
            for method in ["acquireTokenSilently", "removeAccount"] {
                #expect(try await device.call(method, text).status == 6, "\(method): \(text.prefix(60))")
            }
        }
    }

    @Test("removing the account signs the device out; removing another does nothing")
    func removal() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        #expect(try await device.call("removeAccount", .object(["clientId": .string(Device.client)])).status == 19)
        let ada = try await device.signIn("ada")
        let other: JSONValue = .object(["account": .object(["homeAccountId": .string("b.c")])])
        #expect(try await device.call("removeAccount", other).status == 16)
        #expect(try await device.app.getCurrentAccount().current == ada)
        #expect(
            try await device.call("removeAccount", .object(["account": ClientAnswers.account(ada)])) == .object([:])
        )
        #expect(try await device.app.getCurrentAccount().current == nil)
    }

    @Test("after a sign-out the name is released and regained, and the receipt is sent")
    func cleanup() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        let ada = try await device.signIn("ada")
        _ = try await device.call("getAccounts", .object([:]))
        let owners = Log()
        let connection = try DBusConnection.open(device.bus.bus)
        let observation = connection.onSignal { message in
            guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
                arguments.count == 3, arguments[0].stringValue == BrokerContract.busName
            else { return }
            owners.add(arguments[2].stringValue == "" ? "nobody" : "somebody")
        }
        let lease = try await connection.addMatch(
            MatchRule(
                signalFrom: "org.freedesktop.DBus",
                interface: "org.freedesktop.DBus",
                member: "NameOwnerChanged",
                argument0: BrokerContract.busName
            )
        )
        let session = try await device.app.signout(with: ada).session
        #expect(
            try await eventually {
                let report = try await device.app.cleanupReport(ofSession: session)
                return report?.apps.first { $0.identifier == BrokerContract.application }?.progress == .finished
            }
        )
        #expect(try await eventually { owners.lines == ["nobody", "somebody"] })
        #expect(try await connection.owner(of: BrokerContract.busName) != nil)
        withExtendedLifetime((observation, lease)) {}
    }

    @Test(
        "clients' keyring items are deleted before the receipt, and other items stay",
        .enabled(
            if: Shell.has("gnome-keyring-daemon", "secret-tool", "gdbus"),
            "gnome-keyring or secret-tool is not installed"
        ),
        arguments: [false, true]
    )
    func secrets(isLocked: Bool) async throws {
        let device = try await Device(policy: "strict")
        let home = device.directory.path
        let environment = device.environment.merging(["HOME": home]) { $1 }
        let daemon = try ChildProcess(
            "gnome-keyring-daemon",
            ["--foreground", "--unlock", "--components=secrets"],
            environment: environment
        )
        defer { daemon.kill() }
        try daemon.write("password")
        try daemon.closeInput()
        try await Shell.run("gdbus wait --session --timeout 60 org.freedesktop.secrets", environment)
        let schema = "xdg:schema com.microsoft.identity.secret"
        for attributes in [schema + " app one", schema + " app two", "service mail"] {
            let store = "printf ada-4711 | secret-tool store --label MSAL \(attributes)"
            try await Shell.run("for i in 1 2 3 4 5 6 7 8 9; do \(store) && exit; sleep 1; done; exit 1", environment)
        }
        let bridge = try await device.bridge([], ["HOME": home])
        defer { bridge.kill() }
        let ada = try await device.signIn("ada")
        _ = try await device.call("getAccounts", .object([:]))
        let service =
            "gdbus call --session --dest org.freedesktop.secrets --object-path /org/freedesktop/secrets --method "
            + "org.freedesktop.Secret.Service."
        let collection = "\"[objectpath '/org/freedesktop/secrets/collection/login']\""
        if isLocked { try await Shell.run("\(service)Lock \(collection)", environment) }
        let session = try await device.app.signout(with: ada).session
        func bridgeReport() async throws -> CleanupReport.App? {
            let report = try await device.app.cleanupReport(ofSession: session)
            return report?.apps.first { $0.identifier == BrokerContract.application }
        }
        if isLocked {
            #expect(try await eventually { try await bridgeReport()?.progress == .failed })
            #expect(try await bridgeReport()?.detail?.contains("locked") == true)
            #expect(try await device.call("acquireTokenSilently", Device.parameters()).status == 14)
            return
        }
        #expect(try await eventually { try await bridgeReport()?.progress == .finished })
        #expect(try await Shell.run("secret-tool search --all \(schema) 2>&1 || true", environment).isEmpty)
        #expect(try await Shell.run("secret-tool search --all service mail 2>&1", environment).contains("ada-4711"))
    }

    @Test("the bridge does not start if it is disabled or another program has the name")
    func start() async throws {
        let unwanted = try await Device(microsoftBroker: false)
        let first = try unwanted.startBridge()
        #expect(await first.exitStatus() == 78 && first.errorText.contains("microsoftBroker"))

        let device = try await Device()
        let services = "\(device.directory.path)/share/dbus-1/services"
        try FileManager.default.createDirectory(atPath: services, withIntermediateDirectories: true)
        let file = "\(services)/other.service"
        try Device.write("[D-BUS Service]\nName=\(BrokerContract.busName)\nExec=/usr/bin/other-broker\n", to: file)
        let second = try device.startBridge()
        #expect(await second.exitStatus() == 78 && second.errorText.contains(file))

        try FileManager.default.removeItem(atPath: file)
        let serving = try await device.bridge()
        let third = try device.startBridge()
        #expect(await third.exitStatus() == 69)
        serving.kill()
    }

    // MARK: A person is asked

    /// A substitute for the program that asks.
    private func prompt(_ device: Device, _ script: String) throws -> [String] {
        ["--sign-in", try device.directory.writeScript("prompt", script)]
    }

    @Test("declining, a missing display and a failure have different statuses")
    func outcomes() async throws {
        let device = try await Device()
        let mute = try await device.bridge()
        let noDisplay = try await device.call("acquireTokenInteractively", Device.parameters())
        #expect(noDisplay.status == 9 && noDisplay.context.contains("display"))
        mute.kill()
        mute.waitUntilExit()
        // As shared-device-sign-in reports it: the code decides, whatever the exit status.
        let endings: [(code: SharedDeviceError.Code, exit: Int, status: Double)] = [
            (.userCanceled, 1, 7), (.interactionRequired, 69, 9), (.providerUnavailable, 69, 3),
        ]
        for ending in endings {
            let script = #"echo '{"code": "\#(ending.code)", "message": "because"}'; exit \#(ending.exit)"#
            let bridge = try await device.bridge(prompt(device, script), ["DISPLAY": ":7"])
            let answer = try await device.call("acquireTokenInteractively", Device.parameters())
            #expect(answer.status == ending.status && answer.context == "because", "\(ending): \(answer.text)")
            bridge.kill()
            bridge.waitUntilExit()
        }
        let silent = try await device.bridge(prompt(device, "exit 70"), ["DISPLAY": ":7"])
        let nothing = try await device.call("acquireTokenInteractively", Device.parameters())
        #expect(nothing.status == 0 && nothing.context.contains("without a result"), "\(nothing.text)")
        silent.kill()
        silent.waitUntilExit()
        let missing = try await device.bridge(["--sign-in", "/nowhere/prompt"], ["DISPLAY": ":7"])
        defer { missing.kill() }
        let answer = try await device.call("acquireTokenInteractively", Device.parameters())
        #expect(answer.status == 9 && answer.context.contains("/nowhere/prompt"), "\(answer.text)")
    }

    @Test("waiting requests share one prompt, and the last cancellation ends it")
    func cancellation() async throws {
        let device = try await Device()
        let marks = "\(device.directory.path)/marks"
        let bridge = try await device.bridge(
            prompt(device, "echo started >> \(marks); exec sleep 300"),
            ["DISPLAY": ":7"]
        )
        defer { bridge.kill() }
        let one = Task {
            try await device.call("acquireTokenInteractively", Device.parameters(), correlation: "one").status
        }
        #expect(try await eventually { FileManager.default.fileExists(atPath: marks) })
        try await withThrowingTaskGroup(of: Double?.self) { group in
            // With the first request, one more than the limit: its refusal shows that all others are waiting.
            for _ in 1...BrokerContract.interactiveRequests {
                group.addTask {
                    try await device.call("acquireTokenInteractively", Device.parameters(), correlation: "two").status
                }
            }
            #expect(try await group.next() == 15)
            // No request waits under this name.
            #expect(try await device.call("cancelInteractiveFlow", .object([:]), correlation: "three") == .object([:]))
            #expect(try await device.call("cancelInteractiveFlow", .object([:]), correlation: "one") == .object([:]))
            #expect(try await one.value == 8)
            #expect(try await device.call("cancelInteractiveFlow", .object([:]), correlation: "two") == .object([:]))
            for try await status in group { #expect(status == 8) }
        }
        #expect(try String(contentsOfFile: marks, encoding: .utf8) == "started\n")
    }

    @Test("the token is requested for the user who signed in at the prompt")
    func promptSignsIn() async throws {
        let device = try await Device()
        let ready = "\(device.directory.path)/ready"
        let go = "\(device.directory.path)/go"
        let bridge = try await device.bridge(
            prompt(
                device,
                #"touch \#(ready); until [ -e \#(go) ]; do sleep 0.05; done; echo '{"username": "ada", "epoch": 1}'"#
            ),
            ["DISPLAY": ":7"]
        )
        defer { bridge.kill() }
        async let answer = device.call("acquireTokenInteractively", Device.parameters())
        #expect(try await eventually { FileManager.default.fileExists(atPath: ready) })
        try await device.signIn("ada")
        _ = FileManager.default.createFile(atPath: go, contents: nil)
        // The device's own directory goes no further: it issues no ID token.
        let result = try await answer
        #expect(result.status == 9 && result.context.contains("ID token"))
    }
}

final class Log: Sendable {
    private let entries = Locked<[String]>([])
    var lines: [String] { entries.withLock { $0 } }
    func add(_ line: String) { entries.withLock { $0.append(line) } }
}

enum Shell {
    static func has(_ programs: String...) -> Bool {
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
        return programs.allSatisfy { program in
            folders.contains { FileManager.default.isExecutableFile(atPath: "\($0)/\(program)") }
        }
    }

    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    @discardableResult
    static func run(_ command: String, _ environment: [String: String]) async throws -> String {
        let process = try ChildProcess("/bin/sh", ["-c", command], environment: environment)
        guard await process.exitStatus(within: .seconds(120)) == 0 else {
            throw Failure(description: "\(command): \(process.errorText)")
        }
        return process.lines.joined(separator: "\n")
    }
}
