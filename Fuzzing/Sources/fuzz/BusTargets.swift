import CDBus
import Glibc

@testable import DBus
@testable import NotifyCenter

/// A message with a body from the input, as libdbus returns it after its own checks.
///
/// ``message(path:interface:member:)`` makes the header, because a random header is almost never valid. The input is
/// the length of the signature, the signature and the body.
private struct MessageInput {
    let signature: ArraySlice<UInt8>
    let body: ArraySlice<UInt8>

    init?(_ input: ArraySlice<UInt8>) {
        guard let length = input.first, Int(length) < input.count else { return nil }
        signature = input.dropFirst().prefix(Int(length))
        body = input.dropFirst(1 + Int(length))
    }

    /// The first argument, if it is a string.
    var firstText: String? {
        guard signature.first == UInt8(ascii: "s"), body.count >= 4 else { return nil }
        let length = body.prefix(4).reversed().reduce(0) { $0 << 8 | Int($1) }
        return String(decoding: body.dropFirst(4).prefix(length), as: UTF8.self)
    }

    /// Returns `nil` if libdbus refuses the message.
    func message(path: String, interface: String, member: String) -> DBusMessage? {
        var header: [UInt8] = [UInt8(ascii: "l"), UInt8(DBUS_MESSAGE_TYPE_SIGNAL), 0, 1]
        func append(number: Int) {
            for shift in [0, 8, 16, 24] { header.append(UInt8(truncatingIfNeeded: number >> shift)) }
        }
        func align(_ width: Int) { while header.count % width != 0 { header.append(0) } }
        append(number: body.count)
        append(number: 1)
        let start = header.count
        append(number: 0)
        let fields = [(1, "o", path), (2, "s", interface), (3, "s", member), (7, "s", ":1.7")]
        for (code, type, text) in fields {
            align(8)
            header += [UInt8(code), 1, UInt8(type.utf8.first ?? 0), 0]
            append(number: text.utf8.count)
            header += Array(text.utf8) + [0]
        }
        align(8)
        header += [8, 1, UInt8(ascii: "g"), 0, UInt8(signature.count)] + signature + [0]
        let length = header.count - start - 4
        for (index, shift) in [0, 8, 16, 24].enumerated() {
            header[start + index] = UInt8(truncatingIfNeeded: length >> shift)
        }
        align(8)
        let bytes = header + body
        guard bytes.count < 1 << 24 else { return nil }
        let pointer = bytes.withUnsafeBytes { bytes in
            dbus_message_demarshal(bytes.bindMemory(to: CChar.self).baseAddress, CInt(bytes.count), nil)
        }
        guard let pointer else { return nil }
        return DBusMessage(adopting: pointer)
    }
}

/// A notification of either center. An accepted notification can be posted again, and arrives unchanged.
@Sendable func fuzzNotifications(_ input: [UInt8]) {
    guard let choice = input.first, let content = MessageInput(input.dropFirst()) else { return }
    let kind: WireKind = choice & 1 == 0 ? .distributed : .darwin
    let name = NotificationName(content.firstText ?? "")
    let interface = InterfaceName(name, prefix: kind.prefix).description
    guard let message = content.message(path: "/org/notifycenter", interface: interface, member: "Posted") else {
        return
    }
    var last: WireNotification.LastName?
    guard case .notification(let received) = WireNotification.receive(message, kind: kind, last: &last) else { return }
    precondition(received.bytes <= NotificationSize.maximum)
    guard
        let copy = try? WireNotification.message(
            kind,
            name: received.name,
            object: received.object?.text,
            userInfo: received.userInfo
        )
    else { return }
    guard case .notification(let again) = WireNotification.receive(copy, kind: kind, last: &last) else {
        preconditionFailure("a notification that was taken cannot be posted again")
    }
    precondition(again.name == received.name && again.object == received.object)
    precondition(again.userInfo.map { "\($0)" }?.count == received.userInfo.map { "\($0)" }?.count)
}

/// A process's report to notifyd, the states that notifyd returns, and a page of its list.
@Sendable func fuzzReports(_ input: [UInt8]) {
    guard let choice = input.first else { return }
    let signature = Array(
        [
            "tu\(NotifydProtocol.nameRows)", NotifydProtocol.stateRows,
            "\(NotifydProtocol.nameListingRows)\(NotifydProtocol.processRows)t",
        ][Int(choice) % 3].utf8
    )
    let parts = [UInt8(signature.count)] + signature + input.dropFirst()
    guard let content = MessageInput(parts[...]),
        let message = content.message(
            path: NotifydProtocol.path,
            interface: NotifydProtocol.interface,
            member: "Report"
        )
    else { return }
    var arguments = ArgumentReader(message.reader)
    switch choice % 3 {
    case 0:
        _ = arguments.unsigned()
        let limit = Amount(names: 20, bytes: 1000, registrations: 50)
        guard let report = try? ProcessReport(&arguments, limit: limit) else { return }
        precondition(Amount(report).isWithin(limit))
        guard let copy = try? NotifydProtocol.signal(.keep, [.uint64(1)] + report.values, to: ":1.7") else { return }
        arguments = ArgumentReader(copy.reader)
        _ = arguments.unsigned()
        precondition((try? ProcessReport(&arguments, limit: limit)) == report)
    case 1:
        _ = try? [NameReport](keptStates: &arguments)
    default:
        _ = (try? message.arguments()).flatMap { ListPage($0) }
    }
}

/// A stream from a bus, in pieces whose length the first byte gives. A piece may end anywhere in a message.
@Sendable func fuzzFrames(_ input: [UInt8]) {
    guard let length = input.first.map({ Int($0) + 1 }) else { return }
    var ends: [CInt] = [-1, -1]
    guard socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0 else { return }
    defer { for end in ends { close(end) } }
    let reader = MessageReader()
    var rest = input.dropFirst()
    while !rest.isEmpty, !reader.isCorrupt {
        let piece = Array(rest.prefix(length))
        rest = rest.dropFirst(length)
        guard write(ends[0], piece, piece.count) == piece.count, reader.fill(from: ends[1]) else { return }
        while let arrival = reader.next({ $0.serial % 3 == 0 ? .passOver : .read(nil) }) {
            _ = try? arrival.message.arguments()
        }
    }
}
