// D-Bus messages as bytes, made without a library, because a library would refuse malformed ones.

/// The names of notifyd's interface. Only this place in the attacks has them.
enum Notifyd {
    static let name = "org.notifycenter.Notifyd1"
    static let path = "/org/notifycenter/Notifyd"
    static let interface = "org.notifycenter.Notifyd1"
    /// The bus name for which processes with registrations queue.
    static let clientsName = "org.notifycenter.Notifyd1.Clients"
    static let methods = [
        "Enter", "Leave", "Report", "Post", "SetState", "GetState", "SuspendProcess", "ResumeProcess", "List", "Status",
    ]

    static func call(
        _ method: String,
        _ signature: String = "",
        _ body: (inout WireBuffer) -> Void = { _ in }
    ) -> WireMessage {
        .call(method, of: interface, at: path, to: name, signature, body)
    }

    static func getState(_ name: String) -> WireMessage { call("GetState", "s") { $0.string(name) } }

    static func setState(_ name: String, _ value: UInt64, at time: UInt64) -> WireMessage {
        call("SetState", "stt") {
            $0.string(name)
            $0.number(value)
            $0.number(time)
        }
    }

    /// Requests the first page, or the page at the cursor.
    static func list(_ cursor: UInt64 = 0) -> WireMessage { call("List", "t") { $0.number(cursor) } }

    static func enter(_ names: some Sequence<String>) -> WireMessage { call("Enter", names: names) }
    static func leave(_ names: some Sequence<String>) -> WireMessage { call("Leave", names: names) }

    private static func call(_ method: String, names: some Sequence<String>) -> WireMessage {
        call(method, "as") { $0.array { body in for name in names { body.string(name) } } }
    }

    static func post(_ name: String) -> WireMessage { call("Post", "s") { $0.string(name) } }

    /// Makes a report of `count` entries, each with the name `name`, zeros and empty lists.
    static func report(_ count: Int, _ name: String = "") -> WireMessage {
        call("Report", "tua(sbtta(isut)a(isu))") {
            $0.number(UInt64(0))
            $0.number(UInt32(0))
            $0.array(alignment: 8) { rows in
                for _ in 0..<count {
                    rows.align(to: 8)
                    rows.string(name)
                    rows.number(UInt32(0))
                    rows.number(UInt64(0))
                    rows.number(UInt64(0))
                    rows.array(alignment: 8) { _ in }
                    rows.array(alignment: 8) { _ in }
                }
            }
        }
    }

    /// Makes each signal that notifyd sends.
    static func signals(_ round: UInt64) -> [WireMessage] {
        var signals = ["Tell", "Suspend", "Resume"].map {
            WireMessage(kind: .signal, path: path, interface: interface, member: $0)
        }
        (signals[0].signature, signals[0].body) = ("t", WireBuffer { $0.number(round) })
        return signals
    }
}

enum BusDriver {
    static let name = "org.freedesktop.DBus"
    static let path = "/org/freedesktop/DBus"

    static func call(
        _ method: String,
        _ signature: String = "",
        _ body: (inout WireBuffer) -> Void = { _ in }
    ) -> WireMessage {
        .call(method, of: name, at: path, to: name, signature, body)
    }

    /// Forges the bus's signal for a change of owner.
    static func ownerChanged(_ name: String, from old: String, to new: String) -> WireMessage {
        WireMessage(
            kind: .signal,
            path: path,
            interface: Self.name,
            member: "NameOwnerChanged",
            signature: "sss",
            body: WireBuffer { for text in [name, old, new] { $0.string(text) } }
        )
    }

    static func request(_ name: String, flags: UInt32) -> WireMessage {
        call("RequestName", "su") {
            $0.string(name)
            $0.number(flags)
        }
    }
}

/// The bytes of a message's body or header. Numbers are little-endian.
struct WireBuffer {
    private(set) var bytes: [UInt8] = []

    init(_ fill: (inout WireBuffer) -> Void = { _ in }) { fill(&self) }

    mutating func align(to size: Int) { while bytes.count % size != 0 { bytes.append(0) } }

    mutating func byte(_ value: UInt8) { bytes.append(value) }

    mutating func number<Number: FixedWidthInteger>(_ value: Number) {
        align(to: MemoryLayout<Number>.size)
        withUnsafeBytes(of: value.littleEndian) { bytes += $0 }
    }

    mutating func string(_ text: String) {
        number(UInt32(text.utf8.count))
        terminated(text)
    }

    mutating func signature(_ text: String) {
        byte(UInt8(text.utf8.count))
        terminated(text)
    }

    private mutating func terminated(_ text: String) {
        bytes += text.utf8
        bytes.append(0)
    }

    /// Writes an array whose elements have this alignment.
    mutating func array(alignment: Int = 4, _ fill: (inout WireBuffer) -> Void) {
        number(UInt32(0))
        let length = bytes.count - 4
        align(to: alignment)
        let start = bytes.count
        fill(&self)
        withUnsafeBytes(of: UInt32(bytes.count - start).littleEndian) {
            bytes.replaceSubrange(length..<length + 4, with: $0)
        }
    }

    mutating func raw(_ more: [UInt8]) { bytes += more }
}

struct WireMessage {
    enum Kind: UInt8 {
        case call = 1
        case answer = 2
        case signal = 4
    }

    var kind: Kind
    var path: String?
    var interface: String?
    var member: String?
    var destination: String?
    var answers: UInt32?
    var signature = ""
    var body = WireBuffer()
    /// Whether a reply is expected.
    var wantsAnswer = true

    static func call(
        _ method: String,
        of interface: String,
        at path: String,
        to destination: String,
        _ signature: String = "",
        _ body: (inout WireBuffer) -> Void = { _ in }
    ) -> WireMessage {
        WireMessage(
            kind: .call,
            path: path,
            interface: interface,
            member: method,
            destination: destination,
            signature: signature,
            body: WireBuffer(body)
        )
    }

    func bytes(serial: UInt32) -> [UInt8] {
        var header = WireBuffer()
        header.raw([UInt8(ascii: "l"), kind.rawValue, wantsAnswer ? 0 : 1, 1])
        header.number(UInt32(body.bytes.count))
        header.number(serial)
        header.array(alignment: 8) { fields in
            func field(_ code: UInt8, _ type: String, _ fill: (inout WireBuffer) -> Void) {
                fields.align(to: 8)
                fields.byte(code)
                fields.signature(type)
                fill(&fields)
            }
            if let path { field(1, "o") { $0.string(path) } }
            if let interface { field(2, "s") { $0.string(interface) } }
            if let member { field(3, "s") { $0.string(member) } }
            if let answers { field(5, "u") { $0.number(answers) } }
            if let destination { field(6, "s") { $0.string(destination) } }
            if !signature.isEmpty { field(8, "g") { $0.signature(signature) } }
        }
        header.align(to: 8)
        return header.bytes + body.bytes
    }
}

struct ReceivedMessage {
    let kind: UInt8
    let serial: UInt32
    let body: [UInt8]
    private(set) var member: String?
    /// The serial number of the call to which it replies.
    private(set) var answers: UInt32?
    private(set) var sender: String?

    /// Parses a whole message. The bus has checked it, so it is well-formed.
    init(_ bytes: [UInt8]) {
        kind = bytes[1]
        serial = Self.number(bytes, at: 8)
        let end = 16 + Int(Self.number(bytes, at: 12))
        body = Array(bytes[((end + 7) & ~7)...])
        var position = 16
        while position < end {
            position = (position + 7) & ~7
            let code = bytes[position]
            let type = bytes[position + 2]
            position += 4
            if type == UInt8(ascii: "g") {
                position += Int(bytes[position]) + 2
                continue
            }
            let value = Self.number(bytes, at: position)
            position += 4
            if type == UInt8(ascii: "u") {
                if code == 5 { answers = value }
                continue
            }
            let text = String(decoding: bytes[position..<position + Int(value)], as: UTF8.self)
            position += Int(value) + 1
            switch code {
            case 3: member = text
            case 7: sender = text
            default: break
            }
        }
    }

    static func number(_ bytes: [UInt8], at position: Int) -> UInt32 {
        bytes[position..<position + 4].reversed().reduce(0) { $0 << 8 | UInt32($1) }
    }

    /// The first string of the body.
    var text: String {
        guard body.count > 4 else { return "" }
        return String(decoding: body[4..<4 + Int(Self.number(body, at: 0))], as: UTF8.self)
    }

    /// The first array of strings of the body.
    var texts: [String] {
        var texts: [String] = []
        var position = 4
        while position + 4 < body.count {
            let length = Int(Self.number(body, at: position))
            texts.append(String(decoding: body[position + 4..<position + 4 + length], as: UTF8.self))
            position = (position + 4 + length + 1 + 3) & ~3
        }
        return texts
    }
}
