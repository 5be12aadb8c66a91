import Glibc

/// The value of `-s`. As on Darwin it is a decimal number, negative ones by their two's complement, and what is no number counts as
/// far as it is one; beyond Darwin, all 64 bits can be written without a sign.
struct StateText: Equatable {
    let value: UInt64
    /// For standard error, where the text is no such number.
    let warning: String?

    init(_ text: String) {
        if let value = UInt64(text) ?? Int64(text).map({ UInt64(bitPattern: $0) }) {
            (self.value, warning) = (value, nil)
        } else {
            value = UInt64(bitPattern: Int64(strtoll(text, nil, 10)))
            warning = "value \(text) is no 64-bit integer: taken as \(value)"
        }
    }
}
