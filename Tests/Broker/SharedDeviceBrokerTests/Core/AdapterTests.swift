import DeviceConfiguration
import Foundation
import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Adapters: cleanup for apps whose programs do not call the broker")
struct AdapterTests {
    private let device = VirtualDevice(.strict)
    private let desk: VirtualDevice.App
    private let kiosk = Participant(app: "org.example.kiosk", user: 2000)

    init() throws {
        device.use(try Self.manifest())
        desk = device.app("org.example.desk")
    }

    private static func manifest(_ more: String = "") throws -> AppManifest {
        let cleanup = #""cleanup": {"unit": "kiosk.service", "delete": ["/var/lib/kiosk/profile"]}"#
        let text = #"{"id": "org.example.kiosk", "user": 2000, \#(cleanup)\#(more)}"#
        return try AppManifest(json: Data(text.utf8), file: "kiosk.json")
    }

    private func helper(
        user: UInt32 = 0,
        unit: String = "shared-device-cleanup@org.example.kiosk.service"
    ) -> VirtualDevice.App {
        device.app("org.example.kiosk", user: user, executable: "/usr/libexec/shared-device-cleanup", unit: unit)
    }

    @Test("an adapter holds each session's data from sign-in, in the same transaction")
    func holdsFromSignIn() throws {
        let session = try device.signIn("ada", by: desk)
        let batch = try #require(device.batches.first { $0.sessions[session] != nil })
        #expect(batch.parts[session]?[kiosk] != nil)
        // The debt survives a power cut, which also ends the desk, and the adapter that starts afterwards pays it.
        device.restart()
        device.quit(desk)
        let again = device.app("org.example.desk")
        try device.signOut(by: again)
        try device.finish(again)
        #expect(device.heldFor == ["org.example.kiosk"])
        let helper = helper()
        try device.expectOwed([session], by: helper)
        try device.report(.finished, of: session, by: helper, detail: "removed 3 files")
        #expect(try device.round(session, by: helper)?.outcome == .complete)
        #expect(device.heldFor.isEmpty)
    }

    @Test("an adapter whose program is not for the user holds no data and sees no account")
    func otherUsers() throws {
        device.use(try Self.manifest(#", "allowedUsers": {"users": ["grace"]}"#))
        let helper = helper()
        let session = try device.signIn("ada", by: desk)
        #expect(device.disk.parts[session]?[kiosk] == nil)
        try device.expectAccount(nil, for: helper)
        try device.signOut(by: desk)
        try device.finish(desk)
        let next = try device.signIn("grace", by: desk)
        #expect(device.disk.parts[next]?[kiosk] != nil)
        try device.expectAccount("grace", for: helper)
    }

    // Without a debt of the adapter, which could be another reason.
    @Test("an adapter that the app lists exclude holds no data")
    func keptOut() throws {
        device.configure { $0.lists.blocked = ["org.example.kiosk"] }
        device.use(try Self.manifest(#", "sharedDeviceModeSupported": false"#))
        let session = try device.signIn("ada", by: desk)
        #expect(device.state.ledger.parts[session]?[kiosk] == nil)
    }

    @Test("only the adapter's unit, run by root, is accepted as the adapter")
    func strangers() throws {
        let session = try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        for stranger in [
            helper(unit: "other.service"), helper(user: 2001), helper(user: 2000),
            device.app("org.example.kiosk", user: 2000),
        ] {
            #expect(throws: Refusal.self) { try device.report(.finished, of: session, by: stranger) }
        }
        #expect(device.state.ledger.debtors.contains(kiosk))
    }

    @Test("a manifest that arrives during a session applies to the open session")
    func manifestDuringSession() throws {
        device.use()
        let session = try device.signIn("ada", by: desk)
        #expect(device.state.ledger.parts[session]?[kiosk] == nil)
        device.use(try Self.manifest())
        #expect(device.state.ledger.parts[session]?[kiosk] != nil)
    }

    @Test("an overdue adapter is handed to the enforcer although it never ran")
    func overdue() throws {
        device.configure { $0.cleanup = CleanupPolicy(.enforced) }
        device.use(try Self.manifest(), try AppManifest.enforced("org.example.desk"))
        let session = try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        try device.finish(desk)
        device.advance(by: .seconds(60))
        let enforcer = device.administrator
        let overdue = try device.askOverdue(enforcer)
        #expect(overdue.map(\.participant) == [kiosk] && overdue.first?.connections == [])
        #expect(try device.enforced(kiosk, [session], by: enforcer).isEmpty)
        try device.signIn("grace", by: desk)
    }
}
