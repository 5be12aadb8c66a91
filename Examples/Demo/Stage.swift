import DemoStage
import ExampleSupport
import Foundation
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit

/// The demonstration's device: a bus, a broker, three apps, Chromium if it is installed, and their directories.
final class Stage {
    let directory: String
    let bus: PrivateBus
    let broker: ChildProcess
    let shop: AppProcess
    let flight: AppProcess
    let field: AppProcess
    /// `nil` if Chromium cannot be shown; ``leftOut`` says why.
    let browser: Browser?
    /// The parts that the demonstration omits on this machine, and why.
    let leftOut: String?
    private let temporary: TemporaryDirectory?

    var apps: [AppProcess] { [shop, flight, field] }
    var stateDirectory: String { "\(directory)/broker" }

    static let organization = "Contoso"

    /// Starts bus, broker and apps. On return the broker responds.
    ///
    /// - Parameter isKept: Whether the directory stays when the demonstration ends.
    init(isKept: Bool) async throws {
        if isKept {
            temporary = nil
            directory = NSTemporaryDirectory() + "shared-device-demo-\(UUID().uuidString.prefix(8))"
        } else {
            let temporary = try TemporaryDirectory("shared-device-demo")
            self.temporary = temporary
            directory = temporary.path
        }
        let directory = directory
        for name in ["broker", "data", "events", "apps"] { try Files.makeDirectory("\(directory)/\(name)") }
        let configuration = "\(directory)/configuration.json"
        let settings =
            #"{"sharedDeviceMode": true, "passwordSignIn": true, "organization": "\#(Self.organization)", "cleanupPolicy": "strict"}"#
        try Files.write(Data(settings.utf8), to: configuration)
        let names = ["point-of-sale", "flight-briefing", "field-service"]
        for name in names + ["demo"] { try Self.enrol(name, in: directory) }
        try Self.enrol(Browser.name, as: Browser.adapter, in: directory)
        // With these services, the bus starts an app that owes a cleanup and is not running.
        let services = names.map { name in
            let command = "\(ChildProcess.built(name)) --clean-up --data \(directory)/data/\(name)"
            return (ExampleApp.identifier(name), "\(command) --events \(directory)/events/\(name).jsonl")
        }
        let bus = try PrivateBus(PrivateBus.Options(services: Dictionary(uniqueKeysWithValues: services)))
        self.bus = bus
        broker = try await ChildProcess.service(
            ChildProcess.built("shared-device-broker"),
            ["--state", "\(directory)/broker", "--configuration", configuration],
            environment: bus.environment
        )
        shop = try AppProcess("point-of-sale", bus: bus.address, directory: directory)
        flight = try AppProcess("flight-briefing", bus: bus.address, directory: directory)
        field = try AppProcess("field-service", bus: bus.address, directory: directory)
        let reason = Browser.reasonToLeaveOut(in: directory)
        browser = try reason == nil ? Browser(bus: bus, directory: directory) : nil
        leftOut = reason.map { "left out: Chromium, because \($0)" }
    }

    /// Writes the app's manifest, which tells the broker the app's program and the name by which the bus starts it.
    private static func enrol(_ name: String, as program: String? = nil, in directory: String) throws {
        let identifier = ExampleApp.identifier(name)
        let executable = ChildProcess.built(program ?? name)
        let manifest = AppManifest(id: identifier, executable: executable, busName: program == nil ? identifier : nil)
        try Files.write(try JSONEncoder().encode(manifest), to: "\(directory)/apps/\(name).json")
    }

    private struct AppManifest: Encodable {
        let id: String
        let executable: String
        let busName: String?
    }

    // MARK: The administrator

    func addUser(_ username: String, displayName: String) async throws -> Person {
        let password = UUID().uuidString
        let command = try start(["user", "add", username, "--display-name", displayName, "--password-stdin"])
        try command.write(password)
        // “added NAME (IDENTIFIER)”
        let line = try await command.line { $0.hasPrefix("added ") }
        guard let identifier = line.split(whereSeparator: { "()".contains($0) }).last else {
            throw DemoFailure("no identifier in “\(line)”")
        }
        let account = Account(identifier: String(identifier), username: username, displayName: displayName)
        return Person(account: account, password: password)
    }

    func removeUser(_ username: String) throws {
        let command = try start(["user", "remove", username])
        let status = command.waitUntilExit()
        guard status == 0 else { throw DemoFailure("shared-device ended with \(status): \(command.errorText)") }
    }

    private func start(_ arguments: [String]) throws -> ChildProcess {
        try ChildProcess(ChildProcess.built("shared-device"), arguments + ["--state", stateDirectory])
    }

    // MARK: All of them

    /// Runs `body` while every app is suspended, so that no file changes during a search.
    func frozen<Value>(_ body: () throws -> Value) async throws -> Value {
        for app in apps { try await app.suspend() }
        defer { for app in apps { app.resume() } }
        return try body()
    }

    var transcript: String {
        let parts =
            apps.map { ($0.name, $0.transcript) } + [("shared-device-broker", broker.errorText)]
            + (browser.map { [(Browser.name, $0.transcript)] } ?? [])
        return parts.map { "--- \($0)\n\($1)" }.joined(separator: "\n")
    }
}

struct Person: Sendable {
    let account: Account
    let password: String

    var username: String { account.username }
    /// The first name, as the timeline shows it.
    var name: String { Person.name(of: account.username) }

    /// The texts in the person's data.
    var markers: [Marker] {
        [
            Marker(kind: "user name", text: account.username),
            Marker(kind: "display name", text: account.displayName ?? account.username),
            Marker(kind: "data marker", text: DataMarker.text(for: account)),
            Marker(kind: "identifier", text: DataMarker.objectIdentifier(account)),
        ]
    }

    static func name(of username: String) -> String { String(username.prefix { $0 != "@" }).capitalized }
}
