import CoreFoundation

/// CFNumber's widest integer, the only one that holds all of `UInt64`. CoreFoundation's public headers do not declare it: its type
/// is 17 (`kCFNumberSInt128Type`), its halves are stored high before low (`CFSInt128Struct`).
struct WideInteger {
    private static let type = CFNumberType(rawValue: 17)

    let value: Int128

    init(_ value: Int128) { self.value = value }

    /// The value of a number that is not a floating-point one.
    init(_ number: CFNumber) {
        guard let type = Self.type else { preconditionFailure("every raw value of a C enumeration is one") }
        var halves: (high: Int64, low: UInt64) = (0, 0)
        CFNumberGetValue(number, type, &halves)
        value = Int128(halves.high) << 64 | Int128(halves.low)
    }

    func makeNumber() -> CFNumber {
        guard let type = Self.type else { preconditionFailure("every raw value of a C enumeration is one") }
        var halves = (high: Int64(value >> 64), low: UInt64(truncatingIfNeeded: value))
        return CFNumberCreate(nil, type, &halves)
    }
}
