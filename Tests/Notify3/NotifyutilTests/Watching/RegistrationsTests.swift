import Testing

@testable import notifyutil

@Suite("Registrations and tokens")
struct RegistrationsTests {
    private func entry(_ token: CInt, _ count: Int?, _ kind: Kind = .port) -> Registrations.Entry {
        Registrations.Entry(token: token, watch: Watch(name: "n\(token)", count: count, kind: kind))
    }

    @Test("a counted registration ends with its last report")
    func counted() {
        var registrations = Registrations()
        registrations.add(entry(2, 2))
        let first = registrations.take(2)
        #expect(first?.isOver == false)
        let second = registrations.take(2)
        #expect(second?.isOver == true)
        #expect(registrations.isEmpty)
        let third = registrations.take(2)
        #expect(third == nil)
    }

    @Test("a registration without a count does not end")
    func endless() {
        var registrations = Registrations()
        registrations.add(entry(2, nil))
        for _ in 0..<1000 { #expect(registrations.take(2)?.isOver == false) }
    }

    @Test("an unknown token has no entry")
    func identity() {
        var registrations = Registrations()
        registrations.add(entry(1, 1))
        let unknown = registrations.take(9)
        #expect(unknown == nil)
        #expect(registrations.entries.count == 1)
    }

    @Test("entries of a kind are found")
    func kinds() {
        var registrations = Registrations()
        registrations.add(entry(1, 1, .signal(1)))
        registrations.add(entry(2, 1, .signal(2)))
        registrations.add(entry(3, 1, .check))
        #expect(registrations.entries { $0 == .signal(2) }.map(\.name) == ["n2"])
        #expect(registrations.entries(where: \.isPolled).map(\.name) == ["n3"])
    }

    @Test("tokens are four bytes in network order, even if they arrive in pieces")
    func tokens() {
        var reader = TokenReader()
        let bytes: [UInt8] = [0, 0, 0, 2, 0, 0, 1, 0, 0x7F, 0xFF, 0xFF, 0xFF]
        #expect(bytes.flatMap { reader.take([$0]) } == [2, 256, .max])
        #expect(reader.take(bytes + [0, 0]) == [2, 256, .max])
        #expect(reader.take([0, 3]) == [3])
    }
}
