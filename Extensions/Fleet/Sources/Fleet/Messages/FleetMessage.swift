import Basics
import FoundationEssentials

/// A message between controller and devices.
package enum FleetMessage: Sendable, Hashable {
    case desired(FleetOrder)
    case heartbeat(highest: UInt64)
    case reported(DeviceReport)
    case presence(isOnline: Bool)

    fileprivate var kind: String {
        switch self {
        case .desired: "desired"
        case .heartbeat: "heartbeat"
        case .reported: "reported"
        case .presence: "presence"
        }
    }

    fileprivate var data: JSONValue {
        switch self {
        case .desired(let order): order.json
        case .heartbeat(let highest): .object(["order": .number(highest)])
        case .reported(let report): report.json
        case .presence(let isOnline): .object(["online": .boolean(isOnline)])
        }
    }
}

/// The reason why a received message is invalid. The text describes only its form, not its content.
package struct FleetMessageError: Error, Sendable, Hashable, CustomStringConvertible {
    package let description: String

    init(_ description: String) { self.description = description }
}

/// A message in its envelope: a CloudEvent 1.0 in structured JSON.
package struct FleetEvent: Sendable, Hashable {
    /// The largest payload, in bytes. An MQTT server accepts 64 KiB.
    package static let largest = 16 << 10
    package static let contentType = "application/cloudevents+json; charset=utf-8"

    private static let limits = JSONLimits(size: largest, depth: 8, values: 2000)
    private static let typePrefix = "org.notifycenter.shareddevice."

    package let message: FleetMessage
    /// The sender, and an identifier that is unique among its messages.
    package let source: String
    package let identifier: String
    /// The sending time, in seconds since 1970 by the sender's clock; for people only.
    package let time: Double?

    package init(_ message: FleetMessage, source: String, identifier: String, time: Double?) {
        self.message = message
        (self.source, self.identifier) = (source, identifier)
        self.time = time
    }

    package var bytes: [UInt8] {
        var members: [String: JSONValue] = [
            "specversion": .string("1.0"), "type": .string(Self.typePrefix + message.kind + ".v1"),
            "source": .string(source), "id": .string(identifier), "datacontenttype": .string("application/json"),
            "data": message.data,
        ]
        if let time {
            members["time"] = .string(Date(timeIntervalSince1970: time).formatted(Self.timeForm))
        }
        return Array(JSONValue.object(members).text.utf8)
    }

    private static let timeForm = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

    /// Parses a payload. Ignores unknown members.
    package init(parsing bytes: [UInt8]) throws(FleetMessageError) {
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONValue(parsing: bytes, limits: Self.limits)
        } catch {
            throw FleetMessageError("it is no JSON: \(error)")
        }
        guard json["specversion"]?.string == "1.0", let type = json["type"]?.string, type.hasPrefix(Self.typePrefix)
        else { throw FleetMessageError("it is no CloudEvent of this project") }
        guard let source = json["source"]?.string, let identifier = json["id"]?.string, let data = json["data"] else {
            throw FleetMessageError("it lacks “source”, “id” or “data”")
        }
        let message: FleetMessage
        switch type.dropFirst(Self.typePrefix.count) {
        case "desired.v1": message = .desired(try FleetOrder(data))
        case "heartbeat.v1": message = .heartbeat(highest: try data.whole("order"))
        case "reported.v1": message = .reported(try DeviceReport(data))
        case "presence.v1":
            guard let isOnline = data["online"]?.boolean else { throw FleetMessageError("it lacks “online”") }
            message = .presence(isOnline: isOnline)
        default: throw FleetMessageError("its type is of another version: \(type.quoted)")
        }
        let time = json["time"]?.string.flatMap { text in
            (try? Date(text, strategy: Self.timeForm)) ?? (try? Date(text, strategy: .iso8601))
        }
        self.init(message, source: source, identifier: identifier, time: time?.timeIntervalSince1970)
    }
}

extension JSONValue {
    /// A required number.
    func whole(_ name: String) throws(FleetMessageError) -> UInt64 {
        guard let number = self[name]?.wholeNumber else { throw FleetMessageError("“\(name)” is no whole number") }
        return number
    }

    /// An optional number; `null` counts as missing.
    func wholeIfThere(_ name: String) throws(FleetMessageError) -> UInt64? {
        if self[name] == nil || self[name] == .null { return nil }
        return try whole(name)
    }

    /// A printable text of at most so many characters. Replaces invisible characters: a D-Bus message cannot contain a
    /// NUL, so a NUL from one device would prevent the response about all devices.
    func words(_ name: String, atMost count: Int) throws(FleetMessageError) -> String {
        guard let text = self[name]?.string, text.unicodeScalars.count <= count else {
            throw FleetMessageError("“\(name)” is no text of at most \(count) characters")
        }
        return text.printable(count)
    }
}
