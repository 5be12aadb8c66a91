import Testing

@testable import NotifyCenter

@Suite("Matching of posts and observers")
struct ObserverRegistryTests {
    private typealias Registry = ObserverRegistry<String, Int>

    // CF-M2, CF-M7
    @Test("names and objects match as the table says")
    func table() {
        var registry = Registry()
        let registrations: [(NotificationName?, String?)] = [("n", nil), ("n", "A"), (nil, nil), (nil, "A")]
        for (index, (name, object)) in registrations.enumerated() {
            _ = registry.add(index, name: name, object: object)
        }
        let posts: [(NotificationName, String?)] = [("n", nil), ("n", "A"), ("n", "B"), ("m", "A")]
        let receivers = posts.map { registry.receivers(name: $0, object: $1) }
        #expect(receivers == [[0, 2], [0, 1, 2, 3], [0, 2], [2, 3]])
    }

    // CF-D3, compared with a linear search of a simple list.
    @Test("receivers come in order of registration, after any additions and removals")
    func order() {
        var generator = SplitMix(state: 7)
        for _ in 0..<40 {
            var registry = Registry()
            var model: [(number: Int, key: Registry.Key, name: NotificationName?, object: String?)] = []
            for number in 0..<60 {
                if Int.random(in: 0..<3, using: &generator) == 0,
                    let victim = model.indices.randomElement(using: &generator)
                {
                    let removed = registry.remove(model.remove(at: victim).key)
                    if removed == nil { Issue.record("a registration is not there to be removed") }
                } else {
                    let name: NotificationName? = ["a", "b", nil].randomElement(using: &generator) ?? nil
                    let object: String? = ["x", "y", nil].randomElement(using: &generator) ?? nil
                    model.append((number, registry.add(number, name: name, object: object), name, object))
                }
                for name in ["a", "b", "c"] as [NotificationName] {
                    for object in ["x", "y", "z", nil] {
                        let expected = model.filter {
                            ($0.name == nil || $0.name == name) && ($0.object == nil || $0.object == object)
                        }
                        let receivers = registry.receivers(name: name, object: object).compactMap(\.self)
                        // Outside the macro, because there are tens of thousands of checks.
                        if receivers != expected.map(\.number) { Issue.record("\(receivers), and not \(expected)") }
                    }
                }
            }
            #expect(registry.count == model.count)
            #expect(registry.all.sorted() == model.map(\.number).sorted())
        }
    }

    // CF-R5
    @Test("a removal happens once, and emptying a long list is not quadratic")
    func removal() {
        var registry = Registry()
        let key = registry.add(1, name: "n", object: nil)
        let removed = [registry.remove(key), registry.remove(key)]
        #expect(removed == [1, nil])
        #expect(registry.count == 0)
        var long = Registry()
        let keys = (0..<100_000).map { long.add($0, name: "n", object: nil) }
        for key in keys.prefix(50_000) { long.remove(key) }
        for key in keys.suffix(50_000).reversed() { long.remove(key) }
        #expect(long.count == 0)
        #expect(long.receivers(name: "n", object: nil).isEmpty)
    }
}

/// Random numbers that repeat in each run.
struct SplitMix: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
        return mixed ^ (mixed >> 31)
    }
}
