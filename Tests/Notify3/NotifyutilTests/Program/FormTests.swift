import Foundation
import Testing

@Suite("Forms of the output, with the real program")
struct FormTests {
    @Test("verbose lines have token, time, name, state and kind")
    func verbose() async throws {
        let bus = try await ProgramBus(hasNotifyd: true)
        for word in ["port", "file", "dispatch", "check", "plain"] {
            let result = try await bus.run("-v", "-\(word)", "-1", "a b", "-s", "a b", "77", "-p", "a b")
            let form = try Regex(#"\[\d+\] \d{10,}\.\d{3} a b 77 \#(word)"#)
            #expect(result.lines.count == 1 && result.lines[0].wholeMatch(of: form) != nil, "\(result)")
            #expect(result.status == 0)
        }
    }

    @Test("an unreadable state is shown on the line, and its reason is printed once")
    func noState() async throws {
        let result = try await ProgramBus().run("-v", "-2", "a", "-p", "a", "-p", "a")
        #expect(result.lines.count == 2)
        for line in result.lines { #expect(line.wholeMatch(of: /\[\d+\] \d+\.\d{3} a : Failed with code 9/) != nil) }
        #expect(result.errors.components(separatedBy: "no notifyd").count == 2)
        #expect(result.status == 0)
    }

    @Test("any name is posted and reported as it is")
    func hostileNames() async throws {
        let bus = try await ProgramBus()
        for name in Hostile.names {
            let result = try await bus.run("-1", name, "-p", name)
            #expect(result.lines.joined(separator: "\n") == name && result.status == 0, "\(result)")
        }
    }
}
