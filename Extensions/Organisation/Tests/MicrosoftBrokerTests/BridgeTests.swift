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
    @Test("a client sees the account during a session, after which the name is regained")
    func accounts() async throws {
        let device = try await Device.serving()
        let request: JSONValue = .object(["clientId": .string(Device.client), "redirectUri": .string("x")])
        #expect(try await device.call("getAccounts", request)["accounts"] == .array([]))
        let ada = try await device.signIn("ada")
        let account = try #require(try await device.call("getAccounts", request)["accounts"]?.array?.first)
        let names = ["homeAccountId", "realm", "username", "environment", "name"]
        let values = [ada.identifier, ada.tenantIdentifier, "ada", "login.windows.net", "Ada"]
        #expect(names.map { account[$0]?.string } == values)
        #expect(account["localAccountId"]?.string.flatMap(UUID.init(uuidString:)) != nil)
        #expect(account["givenName"] != nil && account["passwordExpiry"]?.number == 0)
        // The cleanup releases the name and sends the receipt.
        let owners = Locked<[String]>([])
        let connection = try DBusConnection.open(device.bus.bus)
        let observation = connection.onSignal { message in
            guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
                arguments.count == 3, arguments[0].stringValue == BrokerContract.busName
            else { return }
            owners.withLock { $0.append(arguments[2].stringValue == "" ? "nobody" : "somebody") }
        }
        let rule = MatchRule(
            signalFrom: "org.freedesktop.DBus",
            interface: "org.freedesktop.DBus",
            member: "NameOwnerChanged",
            argument0: BrokerContract.busName
        )
        let lease = try await connection.addMatch(rule)
        try await device.signOut(ada)
        try await eventually("the name is regained") { owners.withLock { $0 } == ["nobody", "somebody"] }
        #expect(try await device.call("getAccounts", request)["accounts"] == .array([]))
        withExtendedLifetime((observation, lease)) {}
    }

    @Test("the bridge responds to version, introspection, Ping, and malformed requests")
    func version() async throws {
        let device = try await Device.serving()
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
        // The response is a failure with a reason and never a D-Bus error.
        for text in [
            "", "{", "[]", #"{"a":1,"a":2}"#, #"{"authParameters":7}"#, #"{"clientId":7}"#,
            #"{"authParameters":{"clientId":"x","requestedScopes":"a"}}"#, #"{"account":{"username":"ada"}}"#,
            String(repeating: "[", count: 20), "\"" + String(repeating: "x", count: 70_000) + "\"",
        ] {
            for method in ["acquireTokenSilently", "removeAccount"] {
                #expect(try await callBridge(device.bus, method, text).status == 6, "\(method): \(text.prefix(60))")
            }
        }
    }

    @Test("a missing token has its reason; removing the account signs the device out")
    func refusals() async throws {
        let device = try await Device.serving()
        #expect(try await device.call("acquireTokenSilently", Device.parameters()).status == 2)
        #expect(try await device.call("removeAccount", .object(["clientId": .string(Device.client)])).status == 19)
        let ada = try await device.signIn("ada")
        let account = ClientAnswers.account(ada)
        let other: JSONValue = .object(["homeAccountId": .string("b.c")])
        for (parameters, status, words) in [
            (Device.parameters(account: other), 16, ""),
            (Device.parameters(client: UUID().uuidString), 9, "microsoftClientIDs"),
            (Device.parameters(scopes: ["User.ReadWrite"]), 9, "User.ReadWrite"),
            (Device.parameters(account: account, isBound: true), 9, ""),
            // The device's own directory issues no ID token.
            (Device.parameters(account: account), 9, "ID token"),
        ] as [(JSONValue, Double, String)] {
            let answer = try await device.call("acquireTokenSilently", parameters)
            #expect(answer.status == status && (words.isEmpty || answer.context.contains(words)), "\(answer.text)")
        }
        for method in ["acquirePrtSsoCookie", "generateSignedHttpRequest"] {
            let answer = try await device.call(method, .object(["account": account]))
            #expect(answer.status == 9 && !answer.context.isEmpty, "\(method)")
        }
        // Removing another account does nothing.
        #expect(try await device.call("removeAccount", .object(["account": other])).status == 16)
        #expect(try await device.app.getCurrentAccount().current == ada)
        #expect(try await device.call("removeAccount", .object(["account": account])) == .object([:]))
        #expect(try await device.app.getCurrentAccount().current == nil)
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
        try await device.serve([], ["HOME": home])
        let ada = try await device.signIn("ada")
        _ = try await device.call("getAccounts", .object([:]))
        let service =
            "gdbus call --session --dest org.freedesktop.secrets --object-path /org/freedesktop/secrets --method "
            + "org.freedesktop.Secret.Service."
        let collection = "\"[objectpath '/org/freedesktop/secrets/collection/login']\""
        if isLocked { try await Shell.run("\(service)Lock \(collection)", environment) }
        let session = try await device.app.signout(with: ada).session
        if isLocked {
            try await eventually("the failure") { try await device.cleanup(after: session)?.progress == .failed }
            #expect(try await device.cleanup(after: session)?.detail?.contains("locked") == true)
            #expect(try await device.call("acquireTokenSilently", Device.parameters()).status == 14)
            return
        }
        try await eventually("the receipt") { try await device.cleanup(after: session)?.progress == .finished }
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
        let entry = "[D-BUS Service]\nName=\(BrokerContract.busName)\nExec=/usr/bin/other-broker\n"
        try PromptDevice.write(entry, to: file)
        let second = try device.startBridge()
        #expect(await second.exitStatus() == 78 && second.errorText.contains(file))

        try FileManager.default.removeItem(atPath: file)
        try await device.serve()
        let third = try device.startBridge()
        #expect(await third.exitStatus() == 69)
    }

    // MARK: A person is asked

    @Test("declining, a missing display and a failure have different statuses")
    func outcomes() async throws {
        let device = try await Device.serving()
        func answer() async throws -> (status: Double?, context: String) {
            let answer = try await device.call("acquireTokenInteractively", Device.parameters())
            return (answer.status, answer.context)
        }
        let noDisplay = try await answer()
        #expect(noDisplay.status == 9 && noDisplay.context.contains("display"))
        // As shared-device-sign-in reports it: the code decides, whatever the exit status.
        let endings: [(code: SharedDeviceError.Code, exit: Int, status: Double)] = [
            (.userCanceled, 1, 7), (.interactionRequired, 69, 9), (.providerUnavailable, 69, 3),
        ]
        for ending in endings {
            let script = #"echo '{"code": "\#(ending.code)", "message": "because"}'; exit \#(ending.exit)"#
            try await device.serve(prompt: script)
            let told = try await answer()
            #expect(told.status == ending.status && told.context == "because", "\(ending): \(told)")
        }
        try await device.serve(prompt: "exit 70")
        let nothing = try await answer()
        #expect(nothing.status == 0 && nothing.context.contains("without a result"), "\(nothing)")
        try await device.serve(["--sign-in", "/nowhere/prompt"], ["DISPLAY": ":7"])
        let missing = try await answer()
        #expect(missing.status == 9 && missing.context.contains("/nowhere/prompt"), "\(missing)")
    }

    @Test("waiting requests share one prompt, and the last cancellation ends it")
    func cancellation() async throws {
        let device = try await Device()
        let marks = "\(device.directory.path)/marks"
        try await device.serve(prompt: "echo started >> \(marks); exec sleep 300")
        let one = Task {
            try await device.call("acquireTokenInteractively", Device.parameters(), correlation: "one").status
        }
        try await eventually("the prompt") { FileManager.default.fileExists(atPath: marks) }
        try await withThrowingTaskGroup(of: Double?.self) { group in
            // With the first request, one more than the limit: its refusal shows that all others are waiting.
            for _ in 1...BrokerContract.interactiveRequests {
                group.addTask {
                    try await device.call("acquireTokenInteractively", Device.parameters(), correlation: "two").status
                }
            }
            #expect(try await group.next() == 15)
            // No waiting request has this correlation ID.
            #expect(try await device.call("cancelInteractiveFlow", .object([:]), correlation: "three") == .object([:]))
            #expect(try await device.call("cancelInteractiveFlow", .object([:]), correlation: "one") == .object([:]))
            #expect(try await one.value == 8)
            #expect(try await device.call("cancelInteractiveFlow", .object([:]), correlation: "two") == .object([:]))
            for try await status in group { #expect(status == 8) }
        }
        #expect(try String(contentsOfFile: marks, encoding: .utf8) == "started\n")
    }
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
