import NotifyCenter
import Testing

@Suite struct AccessRulesTests {

    // Darwin's own reservations; Rules, a.5.
    private let rules = AccessRules(reservations: [
        .init(prefix: "com.apple.system.", user: 0, group: 0, access: 0x113),
        .init(prefix: "com.apple.system.clock_set", user: 0, group: 266, access: 0x133),
        .init(prefix: "org.example.", user: 501, group: 20, access: 0x013),
    ])

    @Test func rootMayDoEverything() {
        for name in ["com.apple.system.x", "user.uid.501", "user.uid.foo", "org.example.a"] {
            #expect(rules.allows(.read, name, by: Identity(user: 0)))
            #expect(rules.allows(.write, name, by: Identity(user: 0)))
        }
    }

    // Rules, a.4
    // CF-W3
    @Test func aUsersNamesBelongToTheUserDespiteReservations() {
        let rules = AccessRules(reservations: [.init(prefix: "", user: 7, group: 7, access: 0)])
        #expect(rules.allows(.write, "user.uid.501", by: Identity(user: 501)))
        #expect(rules.allows(.read, "user.uid.501.menu", by: Identity(user: 501)))
        #expect(!rules.allows(.read, "user.uid.5010", by: Identity(user: 501)))
        #expect(!rules.allows(.read, "user.uid.foo", by: Identity(user: 501)))
        #expect(rules.allows(.write, "self.x", by: Identity(user: 501)))
        #expect(!rules.allows(.read, "com.example", by: Identity(user: 501)))
    }

    @Test func theLongestPrefixDecides() {
        let member = Identity(user: 501, groups: [20, 266])
        #expect(!rules.allows(.write, "com.apple.system.x", by: member))
        #expect(rules.allows(.write, "com.apple.system.clock_set", by: member))
        #expect(rules.allows(.write, "com.apple.system.clock_setter", by: member))
        #expect(!rules.allows(.write, "com.apple.system.clock_set", by: Identity(user: 501)))
        #expect(rules.allows(.read, "com.apple.system.clock_set", by: Identity(user: 501)))
        #expect(rules.allows(.write, "com.apple.system", by: Identity(user: 501)))
    }

    @Test func userGroupAndOthersHaveABitEach() {
        let (owner, member, other) = (Identity(user: 501), Identity(user: 1, groups: [20]), Identity(user: 2))
        #expect(rules.allows(.write, "org.example.a", by: owner))
        #expect(rules.allows(.read, "org.example.a", by: member))
        #expect(!rules.allows(.write, "org.example.a", by: member))
        #expect(!rules.allows(.read, "org.example.a", by: other))
    }

    /// Access through any of the three is enough, unlike with files.
    @Test func theOwnerMayDoWhatOthersMay() {
        let rules = AccessRules(reservations: [.init(prefix: "a.", user: 501, group: 20, access: 0x300)])
        #expect(rules.allows(.write, "a.b", by: Identity(user: 501, groups: [20])))
    }

    @Test func ofTwoReservationsOfOnePrefixBothMustAllow() {
        let rules = AccessRules(reservations: [
            .init(prefix: "a.", user: 501, group: 0, access: 0x003),
            .init(prefix: "a.", user: 501, group: 0, access: 0x001),
        ])
        #expect(rules.allows(.read, "a.b", by: Identity(user: 501)))
        #expect(!rules.allows(.write, "a.b", by: Identity(user: 501)))
    }

    @Test func prefixesAreComparedByBytes() {
        // A dot and an accent after it form one character.
        #expect(!rules.allows(.write, "com.apple.system.\u{301}x", by: Identity(user: 501)))
        #expect(!rules.isOpen(.read, "user.uid.\u{301}x"))
        #expect(NameScope("self.\u{301}") == .process)
        #expect(NameScope("user.uid.501.\u{301}") == .user(501))
    }

    @Test func anOpenNameIsAllowedToEverybody() {
        #expect(rules.isOpen(.write, "com.example"))
        #expect(rules.isOpen(.write, "self.x"))
        #expect(rules.isOpen(.read, "com.apple.system.x"))
        #expect(!rules.isOpen(.write, "com.apple.system.x"))
        #expect(!rules.isOpen(.read, "org.example.a"))
        #expect(!rules.isOpen(.read, "user.uid.501"))
    }

    @Test func openMeansThatEveryIdentityIsAllowed() {
        let identities = [0, 1, 501].flatMap { user in
            [[], [20], [266]].map { Identity(user: user, groups: $0) }
        }
        for name in ["com.apple.system.x", "com.apple.system.clock_set", "org.example.a", "b", "user.uid.501"] {
            for access in [AccessRules.Access.read, .write] {
                let allowed = identities.allSatisfy { rules.allows(access, name, by: $0) }
                #expect(rules.isOpen(access, name) == allowed, "\(name)")
            }
        }
    }
}
