import Glibc
import NotifyCenter

/// Wall-clock time of an event.
struct Timestamp {
    let seconds: Int
    let milliseconds: Int

    static var now: Timestamp {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(seconds: time.tv_sec, milliseconds: time.tv_nsec / 1_000_000)
    }

    var text: String {
        let digits = String(milliseconds)
        return "\(seconds).\(String(repeating: "0", count: 3 - digits.count))\(digits)"
    }
}

/// One reported event.
struct Line {
    let token: Int
    let time: Timestamp
    let notification: DarwinNotification

    func text(_ format: Format) -> String? {
        let (name, sender) = (notification.name.rawValue, notification.sender ?? "")
        return switch format {
        case .quiet: nil
        case .plain: name
        case .verbose: "[\(token)] \(time.text) \(name) \(sender)"
        case .json:
            "{\"token\":\(token),\"time\":\(time.text),\"name\":\(quoted(name)),\"sender\":\(quoted(sender))}"
        }
    }

    /// A JSON string (RFC 8259). By hand, because a JSON library would be Foundation, and with it half of the start-up time.
    private func quoted(_ text: String) -> String {
        let body = text.unicodeScalars.reduce(into: "") { result, scalar in
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\0"..."\u{1F}":
                let digits = String(scalar.value, radix: 16)
                result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: result.unicodeScalars.append(scalar)
            }
        }
        return "\"\(body)\""
    }
}
