import SharedDevice
import SharedDeviceBroker
import Testing

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
