import DBus
import Identity
@_spi(Extensions) import SharedDevice
import Testing

@testable import BrokerCore
@testable import SharedDeviceBroker

@Suite("Limits of request fields")
struct RequestFieldsTests {
    private func patience(_ wait: DBusValue?) throws -> Duration {
        let fields: BrokerProtocol.Fields = wait.map { ["wait": $0] } ?? [:]
        return try RequestFields(fields, nil).patience()
    }

    /// The patience of a call that asks for an hour.
    private func patience(_ method: BrokerProtocol.Method, _ isAdministration: Bool) throws -> Duration? {
        let wishes: BrokerProtocol.Fields = ["wait": .double(3600), "administration": .boolean(isAdministration)]
        return switch try Request.Call(method, RequestFields(wishes, nil)) {
        case .round(_, _, _, let patience, isAdministration): patience
        case .status(_, let patience), .log(_, _, let patience), .overdue(_, let patience): patience
        default: nil
        }
    }

    @Test("CO-1: a request waits for 60 s at most, with each method that waits for a change")
    func longestWait() throws {
        let waits: [(DBusValue?, Double)] = [
            (nil, 0), (.double(0), 0), (.double(0.25), 0.25), (.double(59), 59), (.double(60), 60), (.double(61), 60),
            (.double(.greatestFiniteMagnitude), 60), (.double(.infinity), 60), (.uint32(0), 0), (.int32(59), 59),
            (.uint32(60), 60), (.int64(61), 60), (.int64(.max), 60), (.uint64(.max), 60),
        ]
        for (wait, seconds) in waits {
            let taken = try patience(wait)
            #expect(taken == .seconds(seconds), "\(String(describing: wait))")
        }
        for wait: DBusValue in [.double(-1), .double(-.infinity), .double(.nan), .int32(-1), .string("1")] {
            let refusal = #expect(throws: Refusal.self) { try patience(wait) }
            #expect(refusal?.description.contains("wait") == true, "\(wait)")
        }
        for method: BrokerProtocol.Method in [.getRound, .getStatus, .getLog, .getOverdue] {
            for isAdministration in [false, true] {
                let taken = try patience(method, isAdministration)
                #expect(taken == .seconds(60), "\(method), \(isAdministration)")
            }
        }
    }

    @Test("a badge with a PIN, or a name with a secret, signs in; only a password joins")
    func credentials() throws {
        func kind(_ method: BrokerProtocol.Method, _ name: String?, _ secrets: SecretFields) -> String {
            let fields: BrokerProtocol.Fields = name.map { ["username": .string($0)] } ?? [:]
            do {
                switch try Request.Call(method, RequestFields(fields, secrets)) {
                case .signIn(.password(let name, let password), _, _, _), .join(.password(let name, let password)):
                    return "\(name) \(password?.text ?? "-")"
                case .signIn(.badge(let number, let pin), _, _, _): return "badge \(number.text) \(pin.text)"
                case .signIn(.pin(let name, let pin), _, _, _): return "PIN \(name) \(pin.text)"
                default: return "another call"
                }
            } catch { return "refused" }
        }
        let (password, badge, pin) = (Secret("p"), Secret("0041"), Secret("1234"))
        #expect(kind(.signIn, "ada", SecretFields(password: password)) == "ada p")
        #expect(kind(.signIn, "ada", SecretFields()) == "ada -")
        #expect(kind(.signIn, nil, SecretFields(badge: badge, pin: pin)) == "badge 0041 1234")
        #expect(kind(.signIn, "ada", SecretFields(pin: pin)) == "PIN ada 1234")
        for secrets in [
            SecretFields(badge: badge), SecretFields(pin: pin), SecretFields(password: password, pin: pin),
            SecretFields(password: password, badge: badge, pin: pin),
        ] { #expect(kind(.signIn, nil, secrets) == "refused") }
        #expect(kind(.join, "ada", SecretFields(password: password)) == "ada p")
        #expect(kind(.join, nil, SecretFields(badge: badge, pin: pin)) == "refused")
    }

    @Test("a redirect to another machine is refused")
    func redirect() throws {
        for address in [
            "http://127.0.0.1:80@example.org/callback", "http://localhost:1234/callback",
            "https://127.0.0.1:1/callback", "http://127.0.0.1:/callback", "http://127.0.0.1:99999/callback",
            "http://127.0.0.1:1/other",
        ] {
            let fields = RequestFields(["redirectURI": .string(address)], nil)
            let refusal = #expect(throws: Refusal.self, "\(address)") { try fields.promptWish() }
            #expect(refusal?.code == .invalidRequest, "\(address)")
        }
    }

    @Test("the screen says what it shows, with one of the known words")
    func screen() throws {
        let call = try Request.Call(.getScreen, RequestFields(["shows": .string("lock"), "wait": .double(3600)], nil))
        guard case .screen(.lock, nil, .seconds(60)) = call else {
            Issue.record("\(call)")
            return
        }
        for fields in [[:], ["shows": .string("locked")], ["shows": .uint32(1)]] as [BrokerProtocol.Fields] {
            let refusal = #expect(throws: Refusal.self) { try Request.Call(.getScreen, RequestFields(fields, nil)) }
            #expect(refusal?.code == .invalidRequest)
        }
    }

    @Test("the enforcer may list at most 64 apps in progress")
    func underWay() throws {
        func taken(_ value: DBusValue) throws -> Set<Participant> {
            try RequestFields(["underWay": value], nil).underWay()
        }
        func app(_ number: UInt64) -> DBusValue {
            .fields(["app": .string("org.example.a\(number)"), "user": .uint64(number)])
        }
        func list(_ count: Int) -> DBusValue { .array((0..<UInt64(count)).map(app), of: "a{sv}") }
        #expect(try RequestFields([:], nil).underWay().isEmpty)
        #expect(try taken(list(0)).isEmpty)
        #expect(try taken(list(64)).contains(Participant(app: "org.example.a63", user: 63)))
        let broken: [DBusValue] = [
            list(65), .string("org.example.a1"), .array([app(1 << 32)], of: "a{sv}"),
            .array([.fields(["app": .string("org.example.a1")])], of: "a{sv}"),
            .array([.fields(["user": .uint32(1)])], of: "a{sv}"),
        ]
        for value in broken { #expect(throws: Refusal.self) { try taken(value) } }
    }
}
