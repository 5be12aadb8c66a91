import Testing

@testable import DBus
@testable import NotifyCenter

@Suite("The escape of names is injective, readable and valid")
struct InterfaceNameTests {
    private func interface(_ name: String) -> String {
        InterfaceName(NotificationName(name), prefix: "org.notifycenter.Darwin1").description
    }

    @Test("ordinary names stay readable, and all others are escaped")
    func escapes() {
        let readable = ["SHARED_MODE_CURRENT_ACCOUNT_CHANGED", "com.example.Menu_opened", "a", "a1.b2", "trailing_"]
        let escaped = [
            ("", "__"), ("my-app", "my__2dapp"), ("a__b", "a__5f_b"), ("a_-", "a__5f__2d"), ("a_.b", "a__5f.b"),
            ("3com.x", "__33com.x"), ("a.3", "a.__33"), (".a", "__2ea"), ("a.", "a__2e"), ("a..b", "a.__2eb"),
            ("é", "__c3__a9"), ("\0", "__00"),
        ]
        for (name, expected) in readable.map({ ($0, $0) }) + escaped {
            #expect(interface(name) == "org.notifycenter.Darwin1.\(expected)")
        }
    }

    @Test("unusual names and names of any length differ, and D-Bus accepts them")
    func injective() throws {
        let alphabet = ["a", "_", ".", "2", "d", "-", "é", "h"]
        var names = [""]
        var layer = [""]
        for _ in 0..<5 {
            layer = layer.flatMap { prefix in alphabet.map { prefix + $0 } }
            names += layer
        }
        let interfaces = names.map(interface)
        let shared = Dictionary(grouping: zip(names, interfaces)) { $0.1 }.values.filter { $0.count > 1 }
        #expect(shared.isEmpty)
        for (name, interface) in zip(names, interfaces) {
            #expect(InterfaceName.name(of: interface, prefix: "org.notifycenter.Darwin1") == NotificationName(name))
        }
        for interface in interfaces.shuffled().prefix(2000) {
            _ = try DBusMessage.signal(path: "/a", interface: interface, member: "C")
        }
        let longNames = [200, 240, 256, 1000, 100_000].map { String(repeating: "n-", count: $0) }
        let digests = longNames.map(interface)
        #expect(Set(digests).count == longNames.count)
        #expect(InterfaceName.name(of: digests[4], prefix: "org.notifycenter.Darwin1") == nil)
        for digest in digests { _ = try DBusMessage.signal(path: "/a", interface: digest, member: "C") }
    }

    @Test("names are compared byte by byte, without Unicode equivalence")
    func comparison() {
        #expect(NotificationName("\u{E9}") != NotificationName("e\u{301}"))
        #expect(Set([NotificationName("\u{E9}"), NotificationName("e\u{301}")]).count == 2)
        #expect(NotificationName("A") != NotificationName("a"))
    }
}
