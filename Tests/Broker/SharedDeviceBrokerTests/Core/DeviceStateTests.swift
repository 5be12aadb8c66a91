import DBus
import DeviceConfiguration
import Identity
import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Rules of the one signed-in account")
struct DeviceStateTests {
    private let idle = DeviceState(mode: .shared, account: nil, epoch: 7)
    private let active = DeviceState(mode: .shared, account: .ada, epoch: 7)
    private let personal = DeviceState(mode: .personal, account: nil, epoch: 7)
    private let rules = SignInRules()

    private func refusal(_ change: () throws(Refusal) -> DeviceState) -> Refusal? {
        do throws(Refusal) {
            _ = try change()
            return nil
        } catch {
            return error
        }
    }

    private func signIn(_ account: Account, in state: DeviceState, _ rules: SignInRules = SignInRules()) -> Refusal? {
        refusal { () throws(Refusal) in try state.signingIn(account, rules) }
    }

    private func signOut(_ identifier: String?, session: UInt64? = nil, in state: DeviceState) -> Refusal? {
        refusal { () throws(Refusal) in try state.signingOut(identifier, session: session) }
    }

    @Test("a sign-in needs an idle shared device, joined if required, and the tenant's user")
    func signIn() throws {
        #expect(try idle.signingIn(.ada, rules) == DeviceState(mode: .shared, account: .ada, epoch: 8))
        let refusals = [signIn(.grace, in: active), signIn(.ada, in: active), signIn(.ada, in: personal)]
        let expected: [Refusal?] = [.accountAlreadySignedIn, .accountAlreadySignedIn, .notSharedDevice]
        #expect(refusals == expected)
        let rules = [SignInRules(requiresJoin: true), SignInRules(requiresJoin: true, isJoined: true), SignInRules()]
        let joined: [Refusal?] = [.deviceNotJoined, nil, nil]
        #expect(rules.map { signIn(.ada, in: idle, $0) } == joined)
        #expect(Refusal.deviceNotJoined.code.description == "workplace_join_required")
        // E19
        let other = SignInRules(isJoined: true, tenantIdentifier: "contoso")
        let own = SignInRules(tenantIdentifier: Account.ada.tenantIdentifier.uppercased())
        let stranger = Account(identifier: "ada", username: "ada")
        let byTenant = [signIn(.ada, in: idle, other), signIn(.ada, in: idle, own), signIn(stranger, in: idle, own)]
        let tenants: [Refusal?] = [.tenantMismatch, nil, .tenantMismatch]
        #expect(byTenant == tenants, "tenants ignore case")
    }

    @Test("a sign-out may name the current account, in any case, its session or nothing")
    func signOut() throws {
        for identifier in [nil, Account.ada.identifier, Account.ada.identifier.uppercased()] {
            #expect(try active.signingOut(identifier) == DeviceState(mode: .shared, account: nil, epoch: 8))
        }
        let refusals = [
            signOut(Account.ada.identifier, session: 7, in: active),
            signOut(Account.ada.identifier, session: 5, in: active), signOut(Account.grace.identifier, in: active),
            signOut(nil, in: idle), signOut(Account.ada.identifier, in: idle), signOut(nil, in: personal),
        ]
        let expected: [Refusal?] = [
            nil, .currentAccountMismatch, .currentAccountMismatch, .noCurrentAccount, .noCurrentAccount,
            .noCurrentAccount,
        ]
        #expect(refusals == expected)
    }

    @Test("a change of the mode or the rules signs out in one step, unless allowed")
    func modes() {
        #expect(active.under(.personal, rules) == DeviceState(mode: .personal, account: nil, epoch: 8))
        #expect(personal.under(.shared, rules) == DeviceState(mode: .shared, account: nil, epoch: 8))
        #expect(active.under(.shared, rules) == nil && personal.under(.personal, rules) == nil)
        #expect(idle.under(.shared, SignInRules(requiresJoin: true)) == nil)
        for rules in [SignInRules(requiresJoin: true), SignInRules(tenantIdentifier: "contoso")] {
            #expect(active.under(.shared, rules) == DeviceState(mode: .shared, account: nil, epoch: 8))
        }
    }

    @Test("each change adds one epoch, and a personal device never has an account")
    func invariants() {
        let changes: [(DeviceState) throws -> DeviceState?] = [
            { try $0.signingIn(.ada, SignInRules()) }, { try $0.signingIn(.grace, SignInRules()) },
            { try $0.signingOut(nil) }, { try $0.signingOut(Account.ada.identifier) },
            { $0.under(.shared, SignInRules()) }, { $0.under(.personal, SignInRules()) },
            { $0.under(.shared, SignInRules(tenantIdentifier: "contoso")) },
        ]
        for state in [personal, idle, active] {
            for change in changes {
                guard let new = try? change(state) else { continue }
                let isNews = new.mode != state.mode || new.account != state.account
                let isAllowed = new.mode == .shared || new.account == nil
                #expect(new.epoch == state.epoch + 1 && isNews && isAllowed, "\(state) became \(new)")
            }
        }
    }

    @Test("a refusal offers a remedy, names no person, and gives apps short names")
    func refusalTexts() {
        let refusals: [Refusal] = [
            .noCurrentAccount, .currentAccountMismatch, .accountAlreadySignedIn, .signInUnderWay, .notSharedDevice,
            .neverConfigured, .cleanupRequired, .cleanupPending(["a"]), .tooManyNames, .requestAbandoned,
            .tenantMismatch, .deviceNotJoined, .notJoined, .joinedElsewhere, .notOrganisationAdministrator,
            .tooManyQuestions,
        ]
        #expect(Set(refusals).count == refusals.count)
        for refusal in refusals {
            #expect(refusal.description.contains(";") && !refusal.description.contains("ada"), "\(refusal)")
        }
        let keys = ["org.example.notes (/usr/bin/notes, uid 1000)", "org.example.till"]
        let text = Refusal.cleanupPending(keys).description
        #expect(text.contains("is not yet gone from notes, till; "), "\(text)")
    }
}

@Suite("The device's membership in an organisation")
struct MembershipTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App
    private let administrator: VirtualDevice.App

    init() {
        desk = device.app("desk")
        administrator = device.administrator
        device.administrators = ["boss@contoso", "chief@fabrikam"]
    }

    private func credentials(_ name: String) -> SignInRequest {
        SignInRequest(username: name, password: Secret("right"))
    }

    @Test("joining admits the tenant's users only, and leaving signs out any user")
    func join() throws {
        try device.signIn("eve@fabrikam", by: desk)
        #expect(try device.ask(administrator, .join(credentials("boss@contoso")))["tenant"]?.stringValue == "contoso")
        #expect(device.disk.membership?.tenantIdentifier == "contoso")
        device.expectSignedOut()
        device.expectRefused(device.send(desk, VirtualDevice.signIn("eve@fabrikam")), .tenantMismatch)
        try device.signIn("ada@contoso", by: desk)
        device.expectRefused(device.send(administrator, .join(credentials("chief@fabrikam"))), .joinedElsewhere)
        device.restart()
        for app in [desk, administrator] { device.reconnect(app) }
        #expect(device.state.membership?.tenantIdentifier == "contoso")
        device.expectRefused(device.send(administrator, .leave(credentials("chief@fabrikam"))), .tenantMismatch)
        device.expectSignedIn()
        try device.ask(administrator, .leave(credentials("boss@contoso")))
        device.expectSignedOut()
        #expect(device.disk.membership == nil && device.disk.device == device.state.device)
    }

    @Test("joining needs both administrators, and the tenant of the configuration")
    func rights() throws {
        let join = Request.Call.join(credentials("ada@contoso"))
        device.expectRefused(device.send(desk, join), .notPermitted)
        device.expectRefused(device.send(administrator, join), .notOrganisationAdministrator)
        device.expectRefused(device.send(administrator, .leave(credentials("boss@contoso"))), .notJoined)
        #expect(device.state.membership == nil)
        device.configure { $0.tenantIdentifier = "Contoso" }
        device.expectRefused(device.send(administrator, .join(credentials("chief@fabrikam"))), .tenantMismatch)
        try device.ask(administrator, .join(credentials("boss@contoso")))
    }
}
