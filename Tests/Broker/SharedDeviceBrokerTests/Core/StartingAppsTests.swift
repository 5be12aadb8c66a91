import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("The bus starts apps that owe a cleanup")
struct StartingAppsTests {
    private let device = VirtualDevice()
    private let orders: VirtualDevice.App

    init() {
        device.use(.app("org.example.orders", busName: "org.example.Orders"), .app("org.example.photos"))
        orders = device.app("org.example.orders")
    }

    @discardableResult
    private func adaWasHere(_ app: VirtualDevice.App) throws -> UInt64 {
        let session = try device.signIn("ada", by: app)
        try device.signOut(by: app)
        return session
    }

    @Test("an app in debt is started at sign-out and after a broker restart")
    func occasions() throws {
        try adaWasHere(orders)
        #expect(device.startedServices == ["org.example.orders"])
        device.restart()
        #expect(device.startedServices == ["org.example.orders", "org.example.orders"])
        // The process that was given the account has ended, and the started one cleans up.
        device.quit(orders)
        let app = device.app("org.example.orders")
        try device.finish(app)
        #expect(device.state.ledger.debtors.isEmpty)
        device.advance(by: .seconds(60))
        let before = device.startedServices.count
        device.quit(app)
        device.advance(by: .seconds(60))
        #expect(device.startedServices.count == before, "an app that owes nothing is not started")
    }

    @Test("an app that ends during its cleanup is started again")
    func endedWhileCleaning() throws {
        let session = try device.signIn("ada", by: orders)
        let desk = device.app("org.example.photos")
        try device.signOut(by: desk)
        try device.report(.begun, of: session, by: orders)
        device.advance(by: .seconds(3600))
        let before = device.startedServices.count
        device.quit(orders)
        device.advance(by: .seconds(61))
        #expect(device.startedServices.count > before)
    }

    @Test("starting is retried while the app owes, at intervals of up to a minute")
    func intervals() throws {
        let session = try adaWasHere(orders)
        device.advance(by: .milliseconds(500))
        #expect(device.startedServices.count == 2)
        device.advance(by: .seconds(1))
        #expect(device.startedServices.count == 3)
        device.advance(by: .seconds(3600))
        #expect((60...75).contains(device.startedServices.count))
        try device.report(.finished, of: session, by: orders)
        let before = device.startedServices.count
        device.advance(by: .seconds(3600))
        #expect(device.startedServices.count == before)
    }

    @Test("a start and each reason why an app cannot be started are logged once")
    func log() throws {
        // Neither a lost bus nor an app that ran already is logged.
        device.service = .noBus
        try adaWasHere(orders)
        device.service = .running
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.woken).isEmpty)
        device.service = .started
        device.advance(by: .seconds(2))
        let expected = "started as org.example.Orders"
        #expect(device.disk.entries(.woken).map(\.detail) == [expected])
        for reason in ["exit 3\nforged line", "no such file"] {
            device.service = .failed(reason)
            device.advance(by: .seconds(600))
        }
        let reasons = ["exit 3\u{FFFD}forged line", "no such file"]
        let failures = reasons.map { "could not be started as org.example.Orders: \($0)" }
        #expect(device.disk.entries(.woken).map(\.detail) == [expected] + failures)
    }

    @Test("an app is started only if its manifest has a bus name")
    func withoutName() throws {
        try adaWasHere(device.app("org.example.photos"))
        device.advance(by: .seconds(600))
        #expect(device.startedServices.isEmpty)
        device.use(.app("org.example.photos", busName: "org.example.Photos"))
        #expect(device.startedServices == ["org.example.photos"])
    }
}
