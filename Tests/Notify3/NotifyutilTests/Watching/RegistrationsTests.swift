import Testing

@testable import notifyutil

@Suite("Registrations and tokens")
struct RegistrationsTests {
    private var registrations = Registrations()

    private mutating func add(_ token: CInt, _ count: Int?, _ kind: Kind = .port) {
        let watch = Watch(name: "n\(token)", count: count, kind: kind)
        registrations.add(Registrations.Entry(token: token, watch: watch))
    }

    @Test("a registration is found by its kind, and ends with its last report")
    mutating func counted() {
        add(4, 1, .signal(1))
        add(5, 1, .signal(2))
        add(6, 1, .check)
        #expect(registrations.entries { $0 == .signal(2) }.map(\.name) == ["n5"])
        #expect(registrations.entries(where: \.isPolled).map(\.name) == ["n6"])
        for token in 4...6 as ClosedRange<CInt> { _ = registrations.take(token) }
        add(2, 2)
        add(3, nil)
        let counted = (0..<3).map { _ in registrations.take(2)?.isOver }
        #expect(counted == [false, true, nil])
        let endless = (0..<1000).map { _ in registrations.take(3)?.isOver }
        #expect(endless.allSatisfy { $0 == false })
        let unknown = registrations.take(9)
        #expect(unknown == nil && registrations.entries.map(\.name) == ["n3"])
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
