import Basics
import Synchronization
import Testing

@testable import NotifyCenter

@Suite("Removing observers by name and object")
struct ObserverTableTests {
    private typealias Table = ObserverTable<String, String, Int>

    /// A table in which observer `o` has every combination of names and objects, one of them twice, and another
    /// observer has one.
    private func table() -> Table {
        var table = Table()
        let registrations: [(NotificationName?, String?)] = [
            ("n", "A"), ("n", "B"), ("n", nil), ("m", "A"), (nil, "A"), (nil, nil), ("n", "A"),
        ]
        for (number, (name, object)) in registrations.enumerated() {
            table.add(number, of: "o", name: name, object: object)
        }
        table.add(100, of: "other", name: "n", object: "A")
        return table
    }

    // CF-A5, CF-R1, CF-R2, CF-R3, CF-R5
    @Test("a given name or object must equal the registration's; nil means any")
    func criteria() {
        let expectations: [(NotificationName?, String?, [Int])] = [
            ("n", "A", [0, 6]), ("n", nil, [0, 1, 2, 6]), (nil, "A", [0, 3, 4, 6]), (nil, nil, Array(0...6)),
            ("n", "X", []), ("x", nil, []), ("m", "B", []),
        ]
        for (name, object, expected) in expectations {
            var table = table()
            let stranger = table.remove("stranger", name: name, object: object)
            let removed = table.remove("o", name: name, object: object)
            let again = table.remove("o", name: name, object: object)
            let rest = table.remove("o", name: nil, object: nil)
            let others = table.remove("other", name: nil, object: nil)
            let expectedRest = (0...6).filter { !expected.contains($0) }
            #expect([stranger, removed, again, rest, others] == [[], expected, [], expectedRest, [100]])
        }
    }

    /// An object that counts comparisons.
    private struct CountedObject: Hashable {
        static let comparisons = Locked(0)
        let number: Int

        static func == (left: Self, right: Self) -> Bool {
            comparisons.withLock { $0 += 1 }
            return left.number == right.number
        }

        func hash(into hasher: inout Hasher) { hasher.combine(number) }
    }

    @Test("removing registrations one by one compares each with only a few others")
    func linear() {
        var table = ObserverTable<String, CountedObject, Int>()
        let count = 2000
        for name in ["given", nil] as [NotificationName?] {
            for number in 0..<count {
                table.add(number, of: "o", name: NotificationName("\(number)"), object: CountedObject(number: number))
            }
            let before = CountedObject.comparisons.withLock { $0 }
            var removed: [Int] = []
            for number in 0..<count {
                let object = CountedObject(number: number)
                removed += table.remove("o", name: name.map { _ in NotificationName("\(number)") }, object: object)
            }
            #expect(removed == Array(0..<count))
            #expect(CountedObject.comparisons.withLock { $0 } - before < 100 * count)
        }
    }
}
