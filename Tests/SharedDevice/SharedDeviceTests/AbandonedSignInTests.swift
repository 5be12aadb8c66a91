import Basics
import DBus
import DBusService
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@_spi(Extensions) @testable import SharedDevice

@Suite("Abandoned sign-ins", .timeLimit(.minutes(10)))
struct AbandonedSignInTests {
    @Test("the pending sign-in of an app that ends is dropped")
    func abandoned() async throws {
        let device = try await DeviceOnPrivateBus(configuration: #""cleanupPolicy": "strict""#)
        let holder = device.application("holder")
        try await holder.signIn("ada")
        try await holder.signOutCurrent()

        let waiting = try BrokerAdministration(bus: device.bus.bus)
        let request: BrokerProtocol.Fields = [
            "application": .string("org.example.waiting"), "username": .string("grace"),
            "password": .string("correct horse grace"), "wait": .double(60),
        ]
        let answer = Task { try await waiting.call(.signIn, request, timeout: .seconds(60)) }
        try await eventually("the broker has the request") { try await device.isRunning("org.example.waiting") }
        waiting.connection.close()
        _ = await answer.result
        try await eventually("the broker notices that it is gone") {
            try await !device.isRunning("org.example.waiting")
        }

        try await cleanUp(holder)
        try await eventually("the broker refuses it") { device.broker?.errorText.contains("has left the bus") == true }
        #expect(try await holder.getCurrentAccount().current == nil)
        try await holder.signIn("ada")
    }

    @Test("a sign-in that is cancelled during the wait for a cleanup is dropped")
    func cancelled() async throws {
        let device = try await DeviceOnPrivateBus(configuration: #""cleanupPolicy": "strict""#)
        let (holder, app) = (device.application("holder"), device.application("app"))
        try await holder.signIn("ada")
        try await holder.signOutCurrent()
        let asked = Locked(false)
        let signingIn = Task {
            let parameters = InteractiveTokenParameters(scopes: []) { _ in
                asked.withLock { $0 = true }
                return Credentials(username: "grace", password: "correct horse grace")
            }
            return try await app.acquireToken(with: parameters)
        }
        try await eventually("the person was asked") { asked.withLock { $0 } }
        signingIn.cancel()
        await #expect(throws: SharedDeviceError.self) { try await signingIn.value }
        try await cleanUp(holder)
        // Another user can sign in, regardless of the outcome of the cancelled sign-in.
        try await eventually("ada gets in") { await code { try await holder.signIn("ada") } == nil }
        #expect(try await app.getCurrentAccount().current?.username == "ada")
    }

    @Test("a sign-in whose task is cancelled before the request is dropped")
    func cancelledEarly() async throws {
        let device = try await DeviceOnPrivateBus()
        let app = device.application("app")
        for _ in 1...20 {
            let signingIn = Task {
                let parameters = InteractiveTokenParameters(scopes: []) { _ in
                    // The task cancels itself, so it is already cancelled when the request is sent.
                    withUnsafeCurrentTask { $0?.cancel() }
                    return Credentials(username: "grace", password: "correct horse grace")
                }
                return try await app.acquireToken(with: parameters)
            }
            await #expect(throws: SharedDeviceError.self) { try await signingIn.value }
            try await eventually("ada gets in") { await code { try await app.signIn("ada") } == nil }
            try await app.signOutCurrent()
            try await cleanUp(app)
        }
    }

    @Test("an unanswered sign-in is cancelled, because the broker may complete it later")
    func unanswered() async throws {
        let (bus, directory) = (try PrivateBus(), try TemporaryDirectory("unanswered"))
        let labels = Locked<[BrokerProtocol.Method: String]>([:])
        let broker = try await StandInBroker(
            on: bus.bus,
            [
                .getCurrentAccount: { _ in
                    let (nothing, no) = (DBusValue.array([], of: "a{sv}"), DBusValue.boolean(false))
                    return ["epoch": .uint64(1), "owed": nothing, "withheld": no, "strict": no]
                },
                .signIn: { fields in
                    labels.withLock { $0[.signIn] = fields["request"]?.stringValue }
                    throw MethodFailure(name: "org.freedesktop.DBus.Error.NoReply", message: "no answer in time")
                },
                .cancelSignIn: { fields in
                    labels.withLock { $0[.cancelSignIn] = fields["request"]?.stringValue }
                    return [:]
                },
            ]
        )
        let app = SharedDeviceApplication(identifier: "org.example.app", bus: bus.bus, stateDirectory: directory.path)
        #expect(await code { try await app.signIn("ada") } == .brokerUnavailable)
        try await eventually("it is cancelled by its label") {
            labels.withLock { $0[.signIn] != nil && $0[.signIn] == $0[.cancelSignIn] }
        }
        withExtendedLifetime(broker) {}
    }

    private func cleanUp(_ app: SharedDeviceApplication) async throws {
        for await change in app.accountChanges where change.previous != nil { return try await app.cleanupDone(change) }
    }
}
