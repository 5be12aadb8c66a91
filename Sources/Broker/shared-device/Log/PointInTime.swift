import ArgumentParser
import Foundation

/// A time as a command line has it: ISO 8601, a day, or how long ago.
struct PointInTime: ExpressibleByArgument {
    let date: Date

    init?(argument: String) {
        guard let date = Self.ago(argument) ?? Self.calendar(argument) else { return nil }
        self.date = date
    }

    /// `90s`, `10m`, `2h`, `3d`.
    private static func ago(_ text: String) -> Date? {
        let units: [Character: Double] = ["s": 1, "m": 60, "h": 3600, "d": 86400]
        guard let unit = text.last.flatMap({ units[$0] }), let count = UInt32(text.dropLast()) else { return nil }
        return Date(timeIntervalSinceNow: -Double(count) * unit)
    }

    private static func calendar(_ text: String) -> Date? {
        let styles = [
            Date.ISO8601FormatStyle(),
            Date.ISO8601FormatStyle(includingFractionalSeconds: true),
            // A day begins at midnight here.
            Date.ISO8601FormatStyle(timeZone: .current).year().month().day(),
        ]
        for style in styles {
            if let date = try? style.parse(text) { return date }
        }
        return nil
    }
}
