package import Basics
import FoundationEssentials

/// A message between controller and devices.
package enum FleetMessage: Sendable, Hashable {
    case desired(FleetOrder)
    case heartbeat(highest: UInt64)
    case reported(DeviceReport)
    case presence(isOnline: Bool)
}

/// The target of an order: all devices or one.
package enum OrderScope: String, Sendable, Hashable, CaseIterable {
    case all, own
}

/// An order of the controller to a device: to end a session.
package struct FleetOrder: Sendable, Hashable {
    /// The longest reason, in characters.
    package static let longestReason = 200

    /// Unique in a fleet and increasing.
    package let number: UInt64
    /// The newest session to end; `nil` for the session that is open when the order arrives.
    package let session: UInt64?
    /// The reason for the log. It must not name a person.
    package let reason: String

    package init(number: UInt64, session: UInt64? = nil, reason: String) {
        (self.number, self.session, self.reason) = (number, session, reason)
    }

    package var json: JSONValue {
        var members: [String: JSONValue] = [
            "order": .number(number), "action": .string("sign-out"), "reason": .string(reason),
        ]
        if let session { members["session"] = .number(session) }
        return .object(members)
    }

    package init(_ json: JSONValue) throws(FleetRefusal) {
        guard json["action"]?.string == "sign-out" else { throw FleetRefusal("“action” has an unknown value") }
        number = try json.whole("order")
        session = try json.wholeIfThere("session")
        reason = json["reason"] == nil ? "" : try json.words("reason", atMost: Self.longestReason)
    }
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
        self.source = source
        self.identifier = identifier
        self.time = time
    }

    package var bytes: [UInt8] {
        let (kind, data): (String, JSONValue) =
            switch message {
            case .desired(let order): ("desired", order.json)
            case .heartbeat(let highest): ("heartbeat", .object(["order": .number(highest)]))
            case .reported(let report): ("reported", report.json)
            case .presence(let isOnline): ("presence", .object(["online": .boolean(isOnline)]))
            }
        var members: [String: JSONValue] = [
            "specversion": .string("1.0"), "type": .string(Self.typePrefix + kind + ".v1"), "source": .string(source),
            "id": .string(identifier), "datacontenttype": .string("application/json"), "data": data,
        ]
        if let time { members["time"] = .string(Date(timeIntervalSince1970: time).formatted(Self.timeForm)) }
        return Array(JSONValue.object(members).text.utf8)
    }

    private static let timeForm = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

    /// Parses a payload. Ignores unknown members.
    package init(parsing bytes: [UInt8]) throws(FleetRefusal) {
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONValue(parsing: bytes, limits: Self.limits)
        } catch {
            throw FleetRefusal("it is no JSON: \(error)")
        }
        guard json["specversion"]?.string == "1.0", let type = json["type"]?.string, type.hasPrefix(Self.typePrefix)
        else { throw FleetRefusal("it is no CloudEvent of this project") }
        guard let source = json["source"]?.string, let identifier = json["id"]?.string, let data = json["data"] else {
            throw FleetRefusal("it lacks “source”, “id” or “data”")
        }
        (self.source, self.identifier) = (source, identifier)
        switch type.dropFirst(Self.typePrefix.count) {
        case "desired.v1": message = .desired(try FleetOrder(data))
        case "heartbeat.v1": message = .heartbeat(highest: try data.whole("order"))
        case "reported.v1": message = .reported(try DeviceReport(data))
        case "presence.v1":
            guard let isOnline = data["online"]?.boolean else { throw FleetRefusal("it lacks “online”") }
            message = .presence(isOnline: isOnline)
        default: throw FleetRefusal("its type is of another version: \(type.quoted)")
        }
        let date = json["time"]?.string.flatMap { text in
            (try? Date(text, strategy: Self.timeForm)) ?? (try? Date(text, strategy: .iso8601))
        }
        time = date?.timeIntervalSince1970
    }
}

extension JSONValue {
    /// A required number.
    func whole(_ name: String) throws(FleetRefusal) -> UInt64 {
        guard let number = self[name]?.wholeNumber else { throw FleetRefusal("“\(name)” is no whole number") }
        return number
    }

    /// An optional number; `null` counts as missing.
    func wholeIfThere(_ name: String) throws(FleetRefusal) -> UInt64? {
        if self[name] == nil || self[name] == .null { return nil }
        return try whole(name)
    }

    /// A text of at most so many characters, made printable: a D-Bus message cannot contain a NUL, so a NUL from one
    /// device would prevent the response about all devices.
    func words(_ name: String, atMost count: Int) throws(FleetRefusal) -> String {
        guard let text = self[name]?.string, text.unicodeScalars.count <= count else {
            throw FleetRefusal("“\(name)” is no text of at most \(count) characters")
        }
        return text.printable(count)
    }
}
