import DeviceConfiguration
import Foundation
import SharedDevice
import Testing

@testable import BrokerCore

@Suite("A sign-out ends the login session")
struct EndingLoginsTests {
    private let device = VirtualDevice.withLogins(ends: true)
    private let desk: VirtualDevice.App

    init() {
        desk = device.app("desk")
        device.sit(.of())
    }

    /// Lets the desk learn of Ada, and has it sign her out.
    private func signOutByDesk() throws {
        _ = try device.session(for: desk)
        try device.signOut(by: desk)
    }

    private func signOutByAdministrator() throws {
        try device.ask(device.administrator, .signOutAnyone(identifier: nil, reason: "over"))
    }

    @Test("the login session ends after the last receipt, while its apps still run")
    func afterReceipts() throws {
        try signOutByAdministrator()
        device.expectEndedLogins([["1"]])
        device.sit()
        device.sit(.of(1000, "2", began: 1_000_500))
        try signOutByDesk()
        #expect(device.endedLogins.count == 1)
        try device.finish(desk)
        device.expectEndedLogins([["1"], ["2"]])
    }

    @Test("without logind the broker does not poll, and ends the login once it is back")
    func withoutLogind() throws {
        try signOutByDesk()
        device.feed(.seat(nil))
        device.advance(by: .seconds(30))
        #expect(device.state.nextDeadline.map { $0 > device.now.uptime } ?? true)
        device.expectEndedLogins([])
        device.sit(.of())
        device.expectEndedLogins([["1"]])
    }

    @Test("the login session ends after ten seconds without receipts, with retries")
    func withoutReceipts() throws {
        try signOutByDesk()
        device.advance(by: .milliseconds(9900))
        device.expectEndedLogins([])
        device.advance(by: .milliseconds(200))
        device.expectEndedLogins([["1"]])
        device.feed(.loginsEnded(["1"], nil))
        device.advance(by: .seconds(5))
        #expect(device.endedLogins.count == 2)
        device.expectLoginProblem("is still there")
        device.sit(.of(isClosing: true))
        device.advance(by: .seconds(600))
        #expect(device.endedLogins.count == 2 && device.loginProblem == nil)
    }

    @Test("a refusal by logind is logged once and stays in the status until the end")
    func refused() throws {
        try signOutByAdministrator()
        for _ in 0..<3 {
            device.feed(.loginsEnded(["1"], "not permitted"))
            device.advance(by: .seconds(60))
        }
        let entries = device.journal.filter { $0.event == .loginEnded }.compactMap(\.detail)
        #expect(entries == ["login session 1", "login session 1 cannot be ended: not permitted"])
        #expect(device.loginProblem == "login session 1 cannot be ended: not permitted")
        device.sit()
        device.expectLoginProblem(nil)
    }

    @Test("the next user's sign-out keeps a login session that could not be ended before")
    func twoSignOuts() throws {
        try signOutByAdministrator()
        device.feed(.loginsEnded(["1"], "not permitted"))
        device.sit(.of(isActive: false), .of(1001, "2", name: "bea", began: 1_000_500))
        device.expectPerson("bea")
        try signOutByAdministrator()
        device.expectEndedLogins([["1"], ["2"]])
        device.feed(.loginsEnded(["2"], nil))
        #expect(device.loginProblem == "login session 1 cannot be ended: not permitted")
        device.sit(.of(isActive: false))
        device.advance(by: .seconds(5))
        device.expectEndedLogins([["1"], ["2"], ["1"]])
        device.sit()
        device.expectLoginProblem(nil)
    }

    @Test("an earlier login session is not ended before the receipts of its apps")
    func ownReceipts() throws {
        try signOutByDesk()
        device.sit(.of(isActive: false), .of(1001, "2", name: "bea", began: 1_000_500))
        device.expectPerson("bea")
        try signOutByAdministrator()
        // No app had Bea's account. The desk still has to clean up Ada's data.
        device.expectEndedLogins([["2"]])
        try device.finish(desk)
        device.expectEndedLogins([["2"], ["1"]])
    }

    @Test("a log-out and a switch of users end no login session")
    func ownEnd() {
        device.sit(.of(isActive: false), .of(1001, "2", name: "bea"))
        device.sit(.of())
        device.advance(by: .seconds(60))
        device.expectEndedLogins([])
    }

    @Test("a restart completes the end of a login session, and a new setting causes none")
    func restart() throws {
        _ = try device.session(for: desk)
        device.advance(by: .seconds(1))
        try device.signOut(by: desk)
        device.restart()
        device.sit(.of())
        device.advance(by: .seconds(11))
        device.expectEndedLogins([["1"]])

        let other = VirtualDevice()
        try other.signIn("ada", by: other.app("desk"))
        try other.signOut(by: other.app("desk"))
        other.configure {
            $0.identity = .loginSession
            $0.endsLoginSession = true
        }
        other.sit(.of(began: 900_000))
        other.advance(by: .seconds(60))
        other.expectEndedLogins([])
    }

    @Test("with passwords, all graphical sessions at the seat end, and no text console")
    func embedded() throws {
        let device = VirtualDevice()
        device.configure { $0.endsLoginSession = true }
        device.sit(.of(999, "1", name: "kiosk"), .of(1001, "2", type: "tty", isActive: false))
        let desk = device.app("desk")
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        device.expectEndedLogins([])
        try device.finish(desk)
        device.expectEndedLogins([["1"]])
    }
}

@Suite("A shutdown waits for the cleanup")
struct ShutdownTests {
    private let device = VirtualDevice.withLogins()

    @Test("a shutdown signs out and waits for receipts, and a cancelled one allows sign-ins")
    func waits() throws {
        device.feed(.login(.shutdown))
        device.advance(by: .seconds(1))
        #expect(device.allowedShutdowns == 1)
        device.sit(.of())
        device.expectPerson(nil)
        device.feed(.login(.shutdownCancelled))
        device.expectPerson("ada")
        let desk = device.app("desk")
        device.sit(.of())
        _ = try device.session(for: desk)
        device.feed(.login(.shutdown))
        device.expectPerson(nil, signedOutBy: ["shutdown"])
        #expect(device.allowedShutdowns == 1)
        try device.finish(desk)
        device.advance(by: .seconds(1))
        #expect(device.allowedShutdowns == 2)
        device.sit(.of())
        device.expectPerson(nil)
    }
}
