/// A time of a local day, to the minute.
package struct TimeOfDay: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// 0 to 23.
    package let hour: Int
    /// 0 to 59.
    package let minute: Int

    /// Fails where `text` is not of the form “HH:MM”, with two digits each, from 00:00 to 23:59.
    package init?(_ text: String) {
        let digits = Array(text.utf8)
        guard digits.count == 5, digits[2] == UInt8(ascii: ":"),
            let hour = Self.number(digits[0], digits[1]), let minute = Self.number(digits[3], digits[4]),
            hour < 24, minute < 60
        else { return nil }
        self.hour = hour
        self.minute = minute
    }

    private static func number(_ tens: UInt8, _ units: UInt8) -> Int? {
        let digits = UInt8(ascii: "0")...UInt8(ascii: "9")
        guard digits.contains(tens), digits.contains(units) else { return nil }
        return Int(tens - digits.lowerBound) * 10 + Int(units - digits.lowerBound)
    }

    package static func < (left: TimeOfDay, right: TimeOfDay) -> Bool {
        (left.hour, left.minute) < (right.hour, right.minute)
    }

    /// “HH:MM”.
    package var description: String { (hour < 10 ? "0" : "") + "\(hour):" + (minute < 10 ? "0" : "") + "\(minute)" }
}
