/// `value` with a fixed number of digits after the point.
func fixed(_ value: Double, digits: Int) -> String {
    var power = 1.0
    for _ in 0..<digits { power *= 10 }
    let scaled = (value.magnitude * power).rounded()
    // Beyond this the digits after the point mean nothing, and the conversion to Int would trap.
    guard scaled < 1e15 else { return "\(value)" }
    let sign = value < 0 && scaled > 0 ? "-" : ""
    let whole = Int(scaled / power)
    guard digits > 0 else { return "\(sign)\(whole)" }
    let fraction = String(Int(scaled) - whole * Int(power))
    return "\(sign)\(whole)." + String(repeating: "0", count: digits - fraction.count) + fraction
}

/// `value` with about three significant digits, never in exponent form.
func threeDigits(_ value: Double) -> String {
    switch value.magnitude {
    case ..<9.995: fixed(value, digits: 2)
    case ..<99.95: fixed(value, digits: 1)
    default: fixed(value, digits: 0)
    }
}
