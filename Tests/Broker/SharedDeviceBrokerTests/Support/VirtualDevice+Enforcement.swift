import DBus
import DeviceConfiguration
import Foundation
import SharedDevice
import Testing
import simulate

@testable import BrokerCore

/// An app that the broker hands to the enforcer.
struct Overdue {
    let participant: Participant
    let sessions: Set<UInt64>
    let connections: [String]
}

extension AppManifest {
    /// The manifest of an app of any user.
    static func app(
        _ identifier: String,
        scopes: Set<String> = [],
        busName: String? = nil,
        allowed: AllowedUsers? = nil
    ) -> AppManifest {
        var rights = TokenRights()
        rights.scopes = scopes
        let identity = AppManifest.Identity(executable: "/usr/bin/app")
        return AppManifest(
            identifier: identifier,
            identity: identity,
            busName: busName,
            tokens: rights,
            allowedUsers: allowed
        )
    }

    /// The manifest of an app of user 1000 whose cleanup can be enforced.
    static func enforced(_ identifier: String) throws -> AppManifest {
        let cleanup = #""cleanup": {"by": "app", "delete": ["/var/lib/orders"]}"#
        let text = #"{"id": "\#(identifier)", "user": 1000, "executable": "/usr/bin/app", \#(cleanup)}"#
        return try AppManifest(json: Data(text.utf8), file: "app.json")
    }
}

extension VirtualDevice {
    func overdue(_ number: UInt64) throws -> [Overdue] {
        try (answer(number)["overdue"]?.elementsValue ?? []).map { value in
            let fields = try #require(value.fieldsValue)
            let user = try #require(fields["user"]?.unsignedValue)
            return Overdue(
                participant: Participant(app: try #require(fields["app"]?.stringValue), user: UInt32(user)),
                sessions: Set((fields["sessions"]?.elementsValue ?? []).compactMap(\.unsignedValue)),
                connections: try #require(fields["connections"]?.stringsValue)
            )
        }
    }

    func askOverdue(_ enforcer: App, underWay: Set<Participant> = []) throws -> [Overdue] {
        try overdue(send(enforcer, .overdue(underWay: underWay, patience: .zero)))
    }

    /// Reports a cleanup as the enforcer.
    ///
    /// - Returns: the connections of the app that are still open.
    @discardableResult
    func enforced(
        _ participant: Participant,
        _ sessions: Set<UInt64>,
        problem: String? = nil,
        by enforcer: App
    ) throws -> [String] {
        let call = Request.Call.enforced(
            app: participant.app,
            user: participant.user,
            sessions: sessions,
            detail: "1 file",
            problem: problem
        )
        return try ask(enforcer, call)["connections"]?.stringsValue ?? []
    }
}

/// Ada has signed out. The desk has cleaned up, and the orders app still owes its cleanup.
struct EnforcementScene {
    let device: VirtualDevice
    let desk: VirtualDevice.App
    let orders: VirtualDevice.App
    let session: UInt64

    init(_ policy: CleanupPolicy = CleanupPolicy(.enforced), requiresProof: Bool = false) throws {
        device = VirtualDevice(policy, requiresProof: requiresProof)
        device.use(try AppManifest.enforced("org.example.desk"), try AppManifest.enforced("org.example.orders"))
        desk = device.app("org.example.desk")
        orders = device.app("org.example.orders")
        session = try device.signIn("ada", by: desk)
        _ = try device.session(for: orders)
        try device.signOut(by: desk)
        try device.finish(desk)
    }

    var enforcer: VirtualDevice.App { device.app(nil, user: 0, isAdministrator: true) }

    /// Lets the deadline pass, and asks for the overdue apps.
    @discardableResult
    func handOver(to enforcer: VirtualDevice.App) throws -> [Overdue] {
        device.advance(by: .seconds(60))
        return try device.askOverdue(enforcer)
    }

    /// Whether a sign-in is refused until the cleanup is done.
    func isHeld() -> Bool { device.refusalOfSignIn("grace", by: desk)?.code == .cleanupPending }

    func expectHeld(_ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(isHeld(), comment, sourceLocation: sourceLocation)
    }

    func expectFree(sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(!isHeld(), sourceLocation: sourceLocation)
    }

    func progress() throws -> CleanupReport.Progress? {
        try device.round(session, by: desk)?.apps.first { $0.identifier == "org.example.orders" }?.progress
    }

    func expectProgress(_ expected: CleanupReport.Progress, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let progress = try progress()
        #expect(progress == expected, sourceLocation: sourceLocation)
    }
}
