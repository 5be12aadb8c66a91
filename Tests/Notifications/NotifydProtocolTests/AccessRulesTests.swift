import Testing

@testable import NotifyCenter

@Suite struct AccessRulesTests {

    // Darwin's own reservations; Rules, a.5.
    private let rules = AccessRules(reservations: [
        .init(prefix: "com.apple.system.", user: 0, group: 0, access: 0x113),
        .init(prefix: "com.apple.system.clock_set", user: 0, group: 266, access: 0x133),
        .init(prefix: "org.example.", user: 501, group: 20, access: 0x013),
    ])

    @Test("the longest prefix decides by a bit for user, group and others, except for root")
    func reservations() {
        for name in ["com.apple.system.x", "user.uid.501", "user.uid.foo", "org.example.a"] {
            rules.expect([(true, .read, name, Identity(user: 0)), (true, .write, name, Identity(user: 0))])
        }
        let (other, both) = (Identity(user: 501), Identity(user: 501, groups: [20, 266]))
        let (member, stranger) = (Identity(user: 1, groups: [20]), Identity(user: 2))
        rules.expect([
            (false, .write, "com.apple.system.x", both), (true, .write, "com.apple.system.clock_set", both),
            (true, .write, "com.apple.system.clock_setter", both), (true, .write, "com.apple.system", other),
            (false, .write, "com.apple.system.clock_set", other), (true, .read, "com.apple.system.clock_set", other),
            (true, .write, "org.example.a", other), (true, .read, "org.example.a", member),
            (false, .write, "org.example.a", member), (false, .read, "org.example.a", stranger),
        ])
        // A right as owner, as member of the group or as another user is enough, unlike with files.
        let forOthers = AccessRules(reservations: [.init(prefix: "a.", user: 501, group: 20, access: 0x300)])
        forOthers.expect([(true, .write, "a.b", Identity(user: 501, groups: [20]))])
        // Of two reservations of one prefix both must allow.
        let twice = AccessRules(reservations: [
            .init(prefix: "a.", user: 501, group: 0, access: 0x003),
            .init(prefix: "a.", user: 501, group: 0, access: 0x001),
        ])
        twice.expect([(true, .read, "a.b", other), (false, .write, "a.b", other)])
    }

    // Rules, a.4
    // CF-W3
    @Test func aUsersNamesBelongToTheUserDespiteReservations() {
        let user = Identity(user: 501)
        let rules = AccessRules(reservations: [.init(prefix: "", user: 7, group: 7, access: 0)])
        rules.expect([
            (true, .write, "user.uid.501", user), (true, .read, "user.uid.501.menu", user),
            (false, .read, "user.uid.5010", user), (false, .read, "user.uid.foo", user),
            (true, .write, "self.x", user), (false, .read, "com.example", user),
        ])
    }

    @Test func prefixesAreComparedByBytes() {
        // A dot and an accent after it form one character.
        #expect(!rules.allows(.write, "com.apple.system.\u{301}x", by: Identity(user: 501)))
        #expect(!rules.isOpen(.read, "user.uid.\u{301}x"))
        #expect([NameScope("self.\u{301}"), NameScope("user.uid.501.\u{301}")] == [.process, .user(501)])
    }

    @Test func anOpenNameIsAllowedToEveryIdentity() {
        let identities = [0, 1, 501].flatMap { user in [[], [20], [266]].map { Identity(user: user, groups: $0) } }
        for (name, open) in [
            ("com.example", [.read, .write]), ("self.x", [.read, .write]), ("com.apple.system.x", [.read]),
            ("com.apple.system.clock_set", [.read]), ("org.example.a", []), ("user.uid.501", []),
        ] as [(String, [AccessRules.Access])] {
            for access in [AccessRules.Access.read, .write] {
                let isOpen = open.contains(access)
                #expect(rules.isOpen(access, name) == isOpen, "\(access) \(name)")
                #expect(identities.allSatisfy { rules.allows(access, name, by: $0) } == isOpen, "\(access) \(name)")
            }
        }
    }
}

extension AccessRules {
    fileprivate func expect(_ cases: [(isAllowed: Bool, access: Access, name: String, identity: Identity)]) {
        for (isAllowed, access, name, identity) in cases {
            #expect(allows(access, name, by: identity) == isAllowed, "\(access) \(name) \(identity)")
        }
    }
}
