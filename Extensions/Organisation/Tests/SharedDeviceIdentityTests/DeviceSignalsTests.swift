import DBus
import FoundationEssentials
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

@testable import OrganisationIdentity

/// The members of a configuration with the event stream of the provider with this fault.
func stream(_ fault: String, more: String = "") async throws -> String {
    let issuer = try await FaultyProvider.shared.value.issuer(fault)
    return #", "sharedSignals": {"endpoint": "\#(issuer)/signals/poll"\#(more)}"#
}

/// An example app with data of the signed-in user.
private final class ExampleApp: Sendable {
    static let names = ["point-of-sale", "flight-briefing", "field-service"]

    let identifier: String
    private let data: String
    private let process: ChildProcess

    init(_ name: String, on device: WholeDevice) throws {
        let home = "\(device.directory.path)/\(name)"
        (identifier, data) = ("org.notifycenter.example.\(name)", home + "/data")
        process = try ChildProcess(
            ChildProcess.built(name),
            ["--stay", "--bus", device.bus.address, "--data", data],
            environment: device.bus.environment.merging(["XDG_STATE_HOME": home + "/state", "HOME": home]) { $1 }
        )
    }

    deinit { process.kill() }

    func holds(_ text: String) -> Bool {
        guard let files = try? FileManager.default.subpathsOfDirectory(atPath: data) else { return false }
        return files.contains { file in
            let content = FileManager.default.contents(atPath: "\(data)/\(file)") ?? Data()
            return content.firstRange(of: Data(text.utf8)) != nil
        }
    }

    func work(for person: String) async throws {
        _ = try await process.line { $0.contains("signed in: \(person)") }
        try process.write("work")
        try await eventually("\(identifier) holds data") { holds(person) }
    }
}

@Suite("Security events, from the provider to the apps")
struct WholeSignalsTests {
    @Test("an event ends the session and apps delete their data, also after a kill")
    func session() async throws {
        let fault = "signals.whole"
        let device = try await WholeDevice(fault: fault, more: stream(fault))
        try await device.signIn()
        let ada = try #require(try await device.account())
        let apps = try ExampleApp.names.map { try ExampleApp($0, on: device) }
        for app in apps { try await app.work(for: ada.username) }
        let session = try #require(try await device.call(.getCurrentAccount)["epoch"]?.unsignedValue)
        let identifier = try await device.test.page("signals/add?event=session-revoked")
        try await eventually("Ada's sign-out") { try await device.account() == nil }
        let observer = SharedDeviceApplication(
            identifier: "org.example.observer",
            bus: device.bus.bus,
            stateDirectory: device.directory.path + "/observer"
        )
        var report: CleanupReport?
        try await eventually("the receipts") {
            report = try await observer.cleanupReport(ofSession: session)
            return apps.allSatisfy { app in
                // The name of an app without a manifest also contains its program.
                report?.apps.contains { $0.identifier.hasPrefix(app.identifier) && $0.progress == .finished } == true
            }
        }
        for app in apps { #expect(!app.holds(ada.username), "\(app.identifier)") }
        try await eventually("the acknowledgement") { try await device.test.page("signals/acknowledged") == identifier }
        // An event that a killed process had not acknowledged counts after its restart.
        try await device.signIn()
        try await device.kill(.identity)
        _ = try await device.test.page("signals/add?event=account-disabled")
        #expect(try await device.account() != nil)
        try await device.start(.identity)
        try await eventually("Ada's second sign-out") { try await device.account() == nil }
    }

    @Test("a non-compliant device refuses sign-ins until the provider says it complies")
    func compliance() async throws {
        let fault = "signals.whole-compliance"
        let device = try await WholeDevice(fault: fault, more: stream(fault, more: #", "device": "till-7""#))
        try await device.signIn()
        let event = "signals/add?event=device-compliance-change&device=till-7&status="
        _ = try await device.test.page(event + "not-compliant")
        try await eventually("Ada's sign-out") { try await device.account() == nil }
        await #expect(throws: (any Error).self) { try await device.signIn() }
        _ = try await device.test.page(event + "compliant")
        try await eventually("the next sign-in") { (try? await device.signIn()) != nil }
        #expect(try await device.account() != nil)
    }

    @Test("a hanging stream delays no sign-in, and a new stream is used at once")
    func hangs() async throws { try await withTaskExecutorPreference(OwnThread()) { try await judgeHanging() } }

    private func judgeHanging() async throws {
        let fault = "signals-hang"
        let device = try await IdentityDevice(fault: fault, more: stream(fault))
        try await eventually("the first request") { try await device.test.page("signals/polls") != "0" }
        let start = ContinuousClock.now
        _ = try await device.signIn()
        #expect(ContinuousClock.now - start < .seconds(40))
        #expect(!device.process.errorText.contains("eyJ") && !device.process.errorText.contains("s&cret"))
        let later = try await FaultyProvider.client("signals.later")
        let issuer = try await FaultyProvider.shared.value.issuer("signals.later")
        try await device.configure(issuer: issuer, more: stream("signals.later"))
        try await eventually("a request to the other stream") { try await Int(later.page("signals/polls")) ?? 0 > 0 }
    }
}
