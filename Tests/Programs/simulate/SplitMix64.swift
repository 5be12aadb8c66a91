/// A small random number generator that gives the same numbers for the same seed on each machine and in each version of
/// Swift.
package struct SplitMix64 {
    private var state: UInt64

    package init(seed: UInt64) { state = seed }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to but not including `bound`. The standard library's algorithm may change between versions.
    package mutating func below(_ bound: Int) -> Int { Int(next() % UInt64(bound)) }

    package mutating func chance(_ percent: Int) -> Bool { below(100) < percent }

    package mutating func pick<Element>(_ elements: [Element]) -> Element { elements[below(elements.count)] }

    /// One of the choices, chosen in proportion to its weight.
    package mutating func pick<Choice>(weighted choices: [(weight: Int, choice: Choice)]) -> Choice {
        var rest = below(choices.reduce(0) { $0 + $1.weight })
        for (weight, choice) in choices {
            rest -= weight
            if rest < 0 { return choice }
        }
        return choices[choices.count - 1].choice
    }
}
