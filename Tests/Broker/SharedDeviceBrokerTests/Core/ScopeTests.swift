import Foundation
import Identity
import SharedDevice
import Testing

@testable import BrokerCore

@Suite("Scopes that apps may request in tokens that the device signs")
struct ScopeTests {
    private let device = VirtualDevice()

    private func app(scopes: Set<String> = []) -> VirtualDevice.App {
        device.use(.app("org.example.app", scopes: scopes))
        return device.app("org.example.app")
    }

    private func signIn(_ scopes: Set<String>, password: String = "right") -> Request.Call {
        let credentials = SignInRequest(username: "ada", password: Secret(password))
        return .signIn(credentials, scopes: scopes, patience: .zero, label: nil)
    }

    @Test("an app whose manifest lists scopes gets only those, at sign-in and later")
    func manifest() throws {
        let app = app(scopes: ["orders.read", "https://orders.example/read"])
        for password in ["right", "wrong"] {
            let refusal = device.refusal(device.send(app, signIn(["orders.write"], password: password)))
            #expect(refusal?.code == .notPermitted && refusal?.description.contains("orders.write") == true)
        }
        device.expectPasswordChecks(0, "a refusal does not tell whether the password was right")
        try device.ask(app, signIn(["https://orders.example/read"]))
        _ = try device.token(for: "ada", ["orders.read"], by: app)
        for scope in ["https://orders.example/admin", "orders.read ", "s"] {
            let refusal = device.refusal(device.send(app, device.acquireToken(for: "ada", [scope, "orders.read"])))
            #expect(refusal?.code == .notPermitted && refusal?.description.contains("\"scopes\"") == true)
        }
        // A cached token is refused once the manifest no longer permits its scopes.
        _ = self.app(scopes: ["orders.write"])
        device.expectRefused(device.send(app, device.acquireToken(for: "ada", ["orders.read"])), code: .notPermitted)
    }

    @Test("any scope is signed if any program may be an app")
    func open() throws {
        let app = device.app("a")
        try device.ask(app, signIn(["https://orders.example/admin"]))
        _ = try device.token(for: "ada", ["https://orders.example/read"], by: app)
    }

    @Test("with required enrolment only a manifest permits scopes of a service")
    func service() throws {
        let app = app()
        device.configure { $0.requiresEnrolment = true }
        device.expectRefused(device.send(app, signIn(["https://orders.example/admin"])), code: .notPermitted)
        try device.ask(app, signIn(["orders.read"]))
        _ = try device.token(for: "ada", ["profile"], by: app)
        let call = device.acquireToken(for: "ada", ["profile", "api://orders/v1/write"])
        #expect(device.refusal(device.send(app, call))?.description.contains("api://orders/v1/write") == true)
    }

    @Test("requested scopes in a refusal are cut to one short line")
    func text() throws {
        let app = app(scopes: ["a"])
        let scopes = Set((0..<50).map { "\($0)\n" + String(repeating: "b", count: 4000) })
        let refusal = try #require(device.refusal(device.send(app, signIn(scopes))))
        #expect(!refusal.description.contains("\n") && refusal.description.utf8.count < 600)
    }
}
