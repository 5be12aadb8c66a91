import Testing

@testable import NotifyCenter

@Suite struct ConfigurationParserTests {
    private func parse(_ text: String) -> (configuration: NotifyConfiguration, errors: [ConfigurationLineError]) {
        ConfigurationParser.parse(Array(text.utf8))
    }

    // Rules, a.5
    @Test func everyKeywordSaysWhatItDoes() {
        let (configuration, errors) = parse(
            """
            # the system's names
            reserve com.apple.system. 0 0 rwr-r-

            RESERVE\tcom.apple.system.clock_set  0\t266   rwrwr-
            monitor com.apple.system.timezone /etc/localtime
            monitor com.apple.system.timezone /etc/timezone
            set com.example.power 7
            Set com.example.mode
            """
        )
        #expect(errors.isEmpty)
        #expect(
            configuration.rules.reservations == [
                .init(prefix: "com.apple.system.", user: 0, group: 0, access: 0x113),
                .init(prefix: "com.apple.system.clock_set", user: 0, group: 266, access: 0x133),
            ]
        )
        #expect(
            configuration.monitors == [
                .init(name: "com.apple.system.timezone", path: "/etc/localtime"),
                .init(name: "com.apple.system.timezone", path: "/etc/timezone"),
            ]
        )
        #expect(
            configuration.permanentNames == [
                .init(name: "com.example.power", state: 7), .init(name: "com.example.mode", state: 0),
            ]
        )
    }

    @Test("a reservation has defaults, a state has 64 bits, the later of two lines holds")
    func values() {
        let reservations: [(String, UInt32, UInt32, UInt16)] = [
            ("reserve a.", 0, 0, 0x333), ("reserve a. 501", 501, 0, 0x333), ("reserve a. 501 20", 501, 20, 0x333),
            ("  reserve a. 501 20 ------ \r", 501, 20, 0), ("reserve a. 1\nreserve a. 2", 2, 0, 0x333),
            ("reserve a. 4294967295 20 -w-w-w", 4_294_967_295, 20, 0x222),
        ]
        for (text, user, group, access) in reservations {
            let (configuration, errors) = parse(text)
            #expect(errors.isEmpty, "\(text)")
            let expected = AccessRules.Reservation(prefix: "a.", user: user, group: group, access: access)
            #expect(configuration.rules.reservations == [expected], "\(text)")
        }
        let states: [(String, UInt64)] = [
            ("set a 18446744073709551615", .max), ("set a -1", .max), ("set a -9223372036854775808", 1 << 63),
            ("set a 1\nset a 2", 2), ("set a\nquit\nset b\nnonsense", 0),
        ]
        for (text, state) in states {
            let (configuration, errors) = parse(text)
            #expect(errors.isEmpty, "\(text)")
            #expect(configuration.permanentNames == [.init(name: "a", state: state)], "\(text)")
        }
    }

    @Test("a bad line is skipped and reported with its number and a remedy")
    func badLines() throws {
        let cases: [(String, ConfigurationLineError.Reason)] = [
            ("hide a", .unknownKeyword("hide")), ("reserve", .missing("prefix")),
            ("reserve a. root", .badIdentifier("root")), ("reserve a. 0 -1", .badIdentifier("-1")),
            ("reserve a. 0 4294967296", .badIdentifier("4294967296")), ("reserve a. 0 0 rw", .badAccess("rw")),
            ("reserve a. 0 0 wrwrwr", .badAccess("wrwrwr")), ("reserve a. 0 0 rwrwrw x", .superfluous("x")),
            ("reserve user.uid.501 0", .fixedName("user.uid.501")), ("monitor a", .missing("path")),
            ("monitor a etc/hosts", .relativePath("etc/hosts")), ("monitor self.a /etc/hosts", .fixedName("self.a")),
            ("set", .missing("name")), ("set a 1.5", .badValue("1.5")),
            ("set a 18446744073709551616", .badValue("18446744073709551616")), ("set self.a", .fixedName("self.a")),
            ("quit now", .superfluous("now")),
        ]
        for (line, reason) in cases {
            let (configuration, errors) = parse("set before 1\n\(line)\nset after 2\n")
            #expect(errors == [ConfigurationLineError(line: 2, text: line, reason: reason)])
            let names = configuration.permanentNames.map { "\($0.name) \($0.state)" }
            #expect(names == ["before 1", "after 2"], "\(line)")
            let description = try #require(errors.first).description
            #expect(description.contains("line 2") && description.hasSuffix(errors[0].remedy), "\(description)")
            #expect(!description.contains("\n"), "\(description)")
        }
    }

    @Test("a line that is not text, or has 1024 bytes, is reported")
    func notText() {
        let bytes = Array("set a".utf8) + [0xFF, 0x0A] + Array("set b\0c\n".utf8) + Array("set d".utf8)
        let (configuration, errors) = ConfigurationParser.parse(bytes)
        #expect(errors.map(\.reason) == [.noText, .noText])
        #expect(configuration.permanentNames == [.init(name: "d", state: 0)])
        let longest = "set " + String(repeating: "a", count: 1019)
        #expect(parse(longest).errors.isEmpty)
        #expect(parse(longest + "a").errors.map(\.reason) == [.tooLong])
    }
}
