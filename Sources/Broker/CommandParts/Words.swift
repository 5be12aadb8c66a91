import DeviceConfiguration
package import FoundationEssentials
package import SharedDevice

package enum Words {
    /// A number of seconds as text: 7 ms, 1.4 s, 3 min 20 s, 2 h 5 min, 3 d 4 h.
    package static func span(_ seconds: Double) -> String {
        guard seconds < 1e12 else { return "long" }
        guard seconds >= 0.9995 else { return "\(Int((max(0, seconds) * 1000).rounded())) ms" }
        guard seconds >= 9.95 else {
            let tenths = Int((seconds * 10).rounded())
            return "\(tenths / 10).\(tenths % 10) s"
        }
        let whole = Int(seconds.rounded())
        let parts = [(whole / 86400, "d"), (whole / 3600 % 24, "h"), (whole / 60 % 60, "min"), (whole % 60, "s")]
        let first = parts.firstIndex { $0.0 > 0 } ?? parts.count - 1
        return parts[first...].prefix(2).filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }.joined(separator: " ")
    }

    /// `1 app`, `3 apps`.
    package static func count(_ number: Int, _ noun: String) -> String { "\(number) \(noun)\(number == 1 ? "" : "s")" }

    package static func policy(of device: ObservedDevice) -> String {
        let time = device.cleanupTimeout.map(span)
        return switch CleanupPolicy.Kind(rawValue: device.cleanupPolicy) {
        case .strict:
            "Strict: the next person waits "
                + (time.map { "for the apps, for \($0) at most." } ?? "until every app has deleted this one’s data.")
        case .enforced:
            "Enforced: an app that has not deleted this person’s data after \(time ?? "1 min") is stopped, and its data deleted."
        case .advisory:
            time.map { "Advisory, but the next person waits for the apps, for \($0) at most." }
                ?? "Advisory: the next person waits for no app."
        case nil: ""
        }
    }

    /// When and why the session ends by itself, or is locked.
    package static func end(_ end: SessionEnd, clock: (Date) -> String) -> String {
        switch end.reason {
        case .inactivity: "at \(clock(end.at)) if the device is not used"
        case .shiftEnd: "at \(clock(end.at)), the end of the shift"
        case .longestSession: "at \(clock(end.at)), after the longest time of a session"
        case .lock: "at \(clock(end.at)) if the screen stays locked"
        case .other: "at \(clock(end.at))"
        }
    }

    /// The effect of a sign-out, shown before the user asks for it (CO-6).
    package static func consequence(of device: ObservedDevice) -> String {
        let holders = device.apps.count { $0.holdsData }
        return holders == 0
            ? "No app holds data."
            : "\(count(holders, "app")) \(holders == 1 ? "holds" : "hold") data of this session and will delete it."
    }
}
