import SharedDevice
import SharedDeviceBroker
import Testing

@Suite("Rules of the one signed-in account")
struct DeviceStateMachineTests {
    private let machine = DeviceStateMachine()
    private let idle = DeviceState(mode: .shared, account: nil, epoch: 7)
    private let active = DeviceState(mode: .shared, account: .ada, epoch: 7)
    private let personal = DeviceState(mode: .personal, account: nil, epoch: 7)

    private func refusal(of event: DeviceEvent, in state: DeviceState) -> String? {
        do throws(DeviceRefusal) {
            _ = try machine.decide(event, in: state)
            return nil
        } catch {
            return error.code.description
        }
    }

    @Test("on an idle shared device a sign-in is accepted")
    func signIn() throws {
        let new = try #require(try machine.decide(.signIn(.ada), in: idle))
        #expect(new.account == .ada)
        #expect(new.account?.username == "ada@example.com")
        #expect(new.mode == .shared)
        #expect(new.epoch == 8)
    }

    @Test("while someone is signed in nobody else can sign in, and not the same account either")
    func secondSignIn() {
        #expect(refusal(of: .signIn(.grace), in: active) == "account_already_signed_in")
        #expect(refusal(of: .signIn(.ada), in: active) == "account_already_signed_in")
    }

    @Test("on a personal device nobody can sign in")
    func personalSignIn() {
        #expect(refusal(of: .signIn(.ada), in: personal) == "not_shared_device")
    }

    @Test("the current account is signed out, by name or without, in whatever case its id is written")
    func signOut() throws {
        for identifier in [nil, Account.ada.identifier, Account.ada.identifier.uppercased()] {
            let new = try #require(try machine.decide(.signOut(accountIdentifier: identifier), in: active))
            #expect(new.account == nil)
            #expect(new.mode == .shared)
            #expect(new.epoch == 8)
        }
    }

    @Test("signing out an account that is not the current one is refused")
    func mismatch() {
        #expect(
            refusal(of: .signOut(accountIdentifier: Account.grace.identifier), in: active) == "current_account_mismatch"
        )
    }

    @Test("signing out when nobody is signed in is refused")
    func signOutOfNobody() {
        #expect(refusal(of: .signOut(accountIdentifier: nil), in: idle) == "no_current_account")
        #expect(refusal(of: .signOut(accountIdentifier: Account.ada.identifier), in: idle) == "no_current_account")
        #expect(refusal(of: .signOut(accountIdentifier: nil), in: personal) == "no_current_account")
    }

    @Test("removing the signed-in account signs it out; removing another changes nothing")
    func removal() throws {
        let identifier = Account.ada.identifier.uppercased()
        let new = try #require(try machine.decide(.accountRemoved(identifier: identifier), in: active))
        #expect(new.account == nil)
        #expect(new.epoch == 8)
        #expect(try machine.decide(.accountRemoved(identifier: Account.grace.identifier), in: active) == nil)
        #expect(try machine.decide(.accountRemoved(identifier: Account.ada.identifier), in: idle) == nil)
    }

    @Test("turning the mode to personal signs the account out in the same step")
    func toPersonal() throws {
        let new = try #require(try machine.decide(.modeChanged(.personal), in: active))
        #expect(new.mode == .personal)
        #expect(new.account == nil)
        #expect(new.epoch == 8)
    }

    @Test("turning the mode to shared signs nobody in")
    func toShared() throws {
        let new = try #require(try machine.decide(.modeChanged(.shared), in: personal))
        #expect(new.mode == .shared)
        #expect(new.account == nil)
        #expect(new.epoch == 8)
    }

    @Test("the same mode again is no change")
    func sameMode() throws {
        #expect(try machine.decide(.modeChanged(.shared), in: active) == nil)
        #expect(try machine.decide(.modeChanged(.personal), in: personal) == nil)
    }

    @Test("whatever happens in whatever order, every change is one epoch and a personal device has no account")
    func invariants() {
        let events: [DeviceEvent] = [
            .signIn(.ada), .signIn(.grace), .signOut(accountIdentifier: nil),
            .signOut(accountIdentifier: Account.ada.identifier), .accountRemoved(identifier: Account.grace.identifier),
            .modeChanged(.shared), .modeChanged(.personal),
        ]
        var reached: Set<String> = []
        var generator = SystemRandomNumberGenerator()
        var state = DeviceState.initial
        for _ in 0..<5000 {
            guard let event = events.randomElement(using: &generator),
                let new = try? machine.decide(event, in: state)
            else { continue }
            #expect(new.epoch == state.epoch + 1)
            #expect(new.mode == .shared || new.account == nil)
            #expect(new.mode != state.mode || new.account != state.account, "\(event) changed nothing in \(state)")
            state = new
            reached.insert("\(state.mode) \(state.account?.username ?? "nobody")")
        }
        #expect(reached.count == 4, "not every state was reached: \(reached)")
    }

    @Test("a refusal tells what helps and names nobody")
    func refusalTexts() {
        let refusals: [DeviceRefusal] = [
            .noCurrentAccount, .currentAccountMismatch, .accountAlreadySignedIn, .notSharedDevice,
        ]
        #expect(Set(refusals.map(\.code)).count == 4)
        for refusal in refusals {
            #expect(refusal.description.contains(";"), "no remedy: \(refusal)")
            #expect(!refusal.description.contains("ada"))
        }
    }
}

@Suite("Rules of enrolment")
struct DeviceRulesTests {
    private let machine = DeviceStateMachine()
    private let idle = DeviceState(mode: .shared, account: nil, epoch: 7)
    private let active = DeviceState(mode: .shared, account: .ada, epoch: 7)

    private func refusal(of event: DeviceEvent, in state: DeviceState, _ rules: DeviceRules) -> String? {
        do throws(DeviceRefusal) {
            _ = try machine.decide(event, in: state, rules: rules)
            return nil
        } catch {
            return error.code.description
        }
    }

    @Test("where joining is required, nobody signs in before it")
    func joinRequired() {
        #expect(refusal(of: .signIn(.ada), in: idle, DeviceRules(requiresJoin: true)) == "workplace_join_required")
        #expect(refusal(of: .signIn(.ada), in: idle, DeviceRules(requiresJoin: true, isJoined: true)) == nil)
        #expect(refusal(of: .signIn(.ada), in: idle, DeviceRules()) == nil)
    }

    // E19
    @Test("users of another tenant are refused; the case of a tenant does not matter")
    func tenants() {
        let other = DeviceRules(isJoined: true, tenantIdentifier: "contoso")
        #expect(refusal(of: .signIn(.ada), in: idle, other) == "brt_tenant_mismatch")
        let own = DeviceRules(tenantIdentifier: Account.ada.tenantIdentifier.uppercased())
        #expect(refusal(of: .signIn(.ada), in: idle, own) == nil)
        #expect(
            refusal(of: .signIn(Account(identifier: "ada", username: "ada")), in: idle, own) == "brt_tenant_mismatch"
        )
    }

    @Test("rules that allow the signed-in account change nothing; others sign it out, in one step")
    func rulesChanged() throws {
        #expect(try machine.decide(.rulesChanged, in: active, rules: DeviceRules()) == nil)
        #expect(try machine.decide(.rulesChanged, in: idle, rules: DeviceRules(requiresJoin: true)) == nil)
        for rules in [DeviceRules(requiresJoin: true), DeviceRules(tenantIdentifier: "contoso")] {
            let next = try #require(try machine.decide(.rulesChanged, in: active, rules: rules))
            #expect(next.account == nil)
            #expect(next.epoch == 8)
            #expect(next.mode == .shared)
        }
    }

    @Test("leaving signs out whoever is signed in")
    func left() throws {
        let next = try #require(try machine.decide(.left, in: active))
        #expect(next.account == nil)
        #expect(next.epoch == 8)
        #expect(try machine.decide(.left, in: idle) == nil)
    }
}
