import CDBus
import Glibc

/// Reads messages from a bus's socket in large pieces, and has libdbus decode only the wanted messages.
///
/// libdbus reads 2 KiB at a time and validates everything. A bus delivers calls faster than that, so a flood would
/// queue in the bus before the calls of others. This reader looks at the header, and skips the body of a refused call.
///
/// Unchecked: used by the connecting thread, and afterwards only by the reading thread.
final class MessageReader: @unchecked Sendable {
    enum Verdict {
        /// The message is read. A call has a ticket.
        case read(CallTicket?)
        case passOver
    }

    struct Arrival: ~Copyable {
        let message: DBusMessage
        let ticket: CallTicket?
    }

    private struct Frame {
        let prefix: MessagePrefix
        let descriptors: Int
        let isAnswer: Bool
        let ticket: CallTicket?
    }

    /// The size of one read: more than a socket holds.
    private static let pieceBytes = 256 * 1024

    /// Room for 256 descriptors. The kernel passes at most 253 with one message (`SCM_MAX_FD`, unix(7)).
    private let control = UnsafeMutableRawBufferPointer.allocate(byteCount: 16 + 256 * 4, alignment: 8)
    private(set) var buffer: UnsafeMutableRawPointer?
    private(set) var capacity = 0
    private var start = 0
    private var end = 0
    /// The number of bytes of a skipped message that have not arrived yet.
    private var surplus = 0
    private var frame: Frame?
    /// The number of bytes from `start` on that the buffer must have room for before parsing can continue.
    private var wanted = 0
    /// The number of bytes that have ever arrived before `start`.
    private var position: UInt64 = 0
    /// Descriptors of messages that have not been returned yet. The byte before `end` belongs to their message, because
    /// one `recvmsg` does not read past it.
    private var descriptors: [(end: UInt64, number: CInt)] = []
    /// Whether the connection must end: the input is not a sequence of messages, or cannot be read.
    private(set) var isCorrupt = false

    deinit {
        release()
        control.deallocate()
        for (_, number) in descriptors { close(number) }
    }

    var isEmpty: Bool { start == end }

    /// Wipes libdbus's copy of a call that it has just freed: the allocator returns the same memory for the next
    /// request of this size. If it does not, the copy lasts until that memory is reused.
    private static func wipeFreed(_ bytes: Int) {
        // libdbus allocates eight bytes more.
        guard let memory = malloc(bytes + 8) else { return }
        explicit_bzero(memory, bytes + 8)
        free(memory)
    }

    // MARK: Filling

    /// Reads what has arrived, up to one piece. Returns false if nothing more can arrive. Corrupt after a failure.
    func fill(from socket: CInt) -> Bool {
        // libdbus notices the end only when nothing is left to read.
        if isCorrupt { return ![0, ECONNRESET].contains(discardInput(of: socket)) }
        guard makeRoom() else {
            fail()
            return true
        }
        var piece = iovec(iov_base: buffer! + end, iov_len: capacity - end)
        return withUnsafeMutablePointer(to: &piece) { piece in
            var message = msghdr()
            message.msg_iov = piece
            message.msg_iovlen = 1
            message.msg_control = control.baseAddress
            message.msg_controllen = control.count
            // The second flag is MSG_CMSG_CLOEXEC.
            while true {
                let count = recvmsg(socket, &message, CInt(MSG_DONTWAIT) | CInt(bitPattern: 0x4000_0000))
                if count < 0, errno == EINTR { continue }
                guard count > 0 else {
                    if count == 0 || errno == ECONNRESET { return false }
                    if errno != EAGAIN { fail() }
                    return true
                }
                end += count
                if message.msg_controllen > 0 { addDescriptors(Int(message.msg_controllen)) }
                passOverSurplus()
                return true
            }
        }
    }

    private func fail() {
        isCorrupt = true
        frame = nil
        release()
    }

    /// Frees the buffer, and wipes the messages in it.
    private func release() {
        if let buffer { explicit_bzero(buffer + start, end - start) }
        free(buffer)
        (buffer, capacity, start, end) = (nil, 0, 0, 0)
    }

    /// Makes room for the next read. Returns false if there is no memory.
    private func makeRoom() -> Bool {
        if isEmpty { (start, end) = (0, 0) }
        let wanted = max(Self.pieceBytes, wanted)
        if start > 0, capacity - end < Self.pieceBytes / 2 || capacity - start < wanted {
            let (oldEnd, count) = (end, end - start)
            memmove(buffer!, buffer! + start, count)
            (start, end) = (0, count)
            explicit_bzero(buffer! + count, oldEnd - count)
        }
        let count = end - start
        let needed = count < wanted ? wanted : count + Self.pieceBytes / 2
        return needed <= capacity || move(to: count < wanted ? wanted : count + Self.pieceBytes)
    }

    /// Moves the contents to a zeroed buffer, which holds no remains of other memory; `realloc` would leave a copy.
    /// Returns false if there is no memory. Large buffers are cheap: unwritten memory is not resident.
    private func move(to size: Int) -> Bool {
        guard let moved = calloc(1, size) else { return false }
        let count = end - start
        if let buffer {
            memcpy(moved, buffer + start, count)
            explicit_bzero(buffer + start, count)
            free(buffer)
        }
        (buffer, capacity, start, end) = (moved, size, 0, count)
        return true
    }

    private func passOverSurplus() {
        guard surplus > 0, let buffer else { return }
        let passed = min(surplus, end - start)
        // A refused call may contain a password.
        explicit_bzero(buffer + start, passed)
        advance(passed)
        surplus -= passed
        for descriptor in takeDescriptors() { close(descriptor) }
    }

    private func advance(_ count: Int) {
        start += count
        position += UInt64(count)
        wanted = 0
    }

    /// Adds the descriptors in the first `count` bytes of `control`.
    private func addDescriptors(_ count: Int) {
        var offset = 0
        while offset + 16 <= count {
            let length = control.loadUnaligned(fromByteOffset: offset, as: Int.self)
            guard length >= 16, offset + length <= count else { return }
            // The type of descriptors, SCM_RIGHTS, is 1.
            if control.loadUnaligned(fromByteOffset: offset + 8, as: CInt.self) == SOL_SOCKET,
                control.loadUnaligned(fromByteOffset: offset + 12, as: CInt.self) == 1
            {
                for place in stride(from: offset + 16, to: offset + length - 3, by: 4) {
                    let number = control.loadUnaligned(fromByteOffset: place, as: CInt.self)
                    descriptors.append((position + UInt64(end - start), number))
                }
            }
            offset += (length + 7) & ~7
        }
    }

    // MARK: Messages

    /// The next wanted message that has arrived. `judge` is called once for each message, when its header has arrived:
    /// only a part of it if it is too long, and the message is then skipped whatever the verdict.
    func next(_ judge: (borrowing MessageHeader) -> Verdict) -> Arrival? {
        while !isCorrupt, let buffer {
            if let frame {
                guard end - start >= frame.prefix.bytes else { return nil }
                self.frame = nil
                let pointer = onLibdbus { dbus_message_demarshal(buffer + start, CInt(frame.prefix.bytes), nil) }
                if frame.ticket != nil { Self.wipeFreed(frame.prefix.bytes) }
                take(frame)
                let taken = takeDescriptors()
                guard let pointer else {
                    // dbus-broker passes on invalid messages. The fault is the sender's, so the connection continues.
                    for descriptor in taken { close(descriptor) }
                    continue
                }
                let message = DBusMessage(adopting: pointer)
                if frame.descriptors > 0 || !taken.isEmpty {
                    message.attach(taken, areTaken: frame.isAnswer && taken.count == frame.descriptors)
                }
                return Arrival(message: message, ticket: frame.ticket)
            }
            let available = UnsafeMutableRawBufferPointer(start: buffer + start, count: end - start)
            guard available.count >= MessagePrefix.size else { return nil }
            guard let prefix = MessagePrefix(available) else {
                fail()
                return nil
            }
            guard prefix.isMessage else {
                passOver(prefix)
                continue
            }
            guard !prefix.isHeaderTooLong else {
                _ = judge(MessageHeader(prefix, available))
                passOver(prefix)
                continue
            }
            guard available.count >= prefix.headerBytes else {
                wanted = prefix.headerBytes
                return nil
            }
            let header = MessageHeader(prefix, available)
            // The count is cleared, because libdbus does not get the descriptors.
            if header.descriptors > 0, let place = header.placeOfDescriptors {
                available.storeBytes(of: 0, toByteOffset: place, as: UInt32.self)
            }
            switch judge(header) {
            case .read(let ticket):
                wanted = prefix.bytes
                frame = Frame(
                    prefix: prefix,
                    descriptors: header.descriptors,
                    isAnswer: header.kind == .methodReturn,
                    ticket: ticket
                )
            case .passOver: passOver(prefix)
            }
        }
        return nil
    }

    /// Removes a message from the buffer, after libdbus has copied it.
    private func take(_ frame: Frame) {
        if frame.ticket != nil, let buffer { explicit_bzero(buffer + start, frame.prefix.bytes) }
        advance(frame.prefix.bytes)
        // Without memory for the smaller buffer, the larger one stays.
        if frame.prefix.bytes > Self.pieceBytes { _ = move(to: max(Self.pieceBytes, end - start)) }
    }

    private func passOver(_ prefix: MessagePrefix) {
        surplus = prefix.bytes
        passOverSurplus()
    }

    /// Removes and returns the descriptors that came before the rest of the buffer.
    private func takeDescriptors() -> [CInt] {
        guard !descriptors.isEmpty else { return [] }
        let taken = descriptors.prefix { $0.end <= position }.map(\.number)
        descriptors.removeFirst(taken.count)
        return taken
    }
}

/// The first bytes of a message, which contain its length.
struct MessagePrefix {
    static let size = 16
    private static let longest = 128 << 20
    private static let longestFields = 64 << 20

    let isBigEndian: Bool
    let type: UInt8
    let flags: UInt8
    let bodyBytes: Int
    let serial: UInt32
    let fieldBytes: Int

    var headerBytes: Int { (Self.size + fieldBytes + 7) & ~7 }
    var bytes: Int { headerBytes + bodyBytes }
    var expectsReply: Bool { flags & 1 == 0 }

    /// Whether D-Bus permits the message. If not, it is skipped by its length: dbus-broker adds the sender to a message
    /// of the greatest length, and does not check serials.
    var isMessage: Bool { serial != 0 && fieldBytes <= Self.longestFields && bytes <= Self.longest }
    var isHeaderTooLong: Bool { fieldBytes > MessageHeader.mostFieldBytes }

    /// - Returns: `nil` if the bytes contain no valid length.
    init?(_ bytes: UnsafeMutableRawBufferPointer) {
        guard [UInt8(ascii: "l"), UInt8(ascii: "B")].contains(bytes[0]), bytes[3] == 1 else { return nil }
        isBigEndian = bytes[0] == UInt8(ascii: "B")
        (type, flags) = (bytes[1], bytes[2])
        let isBigEndian = isBigEndian
        func number(at place: Int) -> UInt32 { Self.number(at: place, in: bytes, isBigEndian) }
        (bodyBytes, serial, fieldBytes) = (Int(number(at: 4)), number(at: 8), Int(number(at: 12)))
    }

    static func number(at place: Int, in bytes: UnsafeMutableRawBufferPointer, _ isBigEndian: Bool) -> UInt32 {
        let number = bytes.loadUnaligned(fromByteOffset: place, as: UInt32.self)
        return isBigEndian ? number.bigEndian : number.littleEndian
    }
}

/// A message's header, known before its body is read. Only the sender can be trusted: the bus vouches for it.
///
/// It refers to the reader's buffer, and must not be kept. A flood is refused by its sender alone: other strings are
/// made on demand.
public struct MessageHeader: ~Copyable {
    /// The longest path of an object in bytes. A caller's path may fill the largest message.
    package static let longestPath = 4096
    /// More than the header of any message needs whose strings are names. Only a path has no limit.
    package static let mostFieldBytes = 16 << 10

    let kind: DBusMessage.Kind
    let serial: UInt32
    public let expectsReply: Bool
    /// The unique name of the sending connection.
    public private(set) var sender: String?
    package let bodyBytes: Int
    public let bytes: Int
    /// Whether the header exceeds the limit for messages that are read. Fields that have not arrived are then missing.
    package let isTooLong: Bool
    /// The serial of the call that this responds to; 0 if there is none.
    private(set) var replySerial: UInt32 = 0
    /// Whether the message is for one connection alone.
    private(set) var isDirected = false
    fileprivate private(set) var descriptors = 0
    fileprivate private(set) var placeOfDescriptors: Int?
    private var texts: (path: Text?, interface: Text?, member: Text?, signature: Text?)

    private typealias Text = UnsafeRawBufferPointer

    package var path: String? { Self.string(texts.path) }
    package var interface: String? { Self.string(texts.interface) }
    public var member: String? { Self.string(texts.member) }
    package var signature: String { Self.string(texts.signature) ?? "" }

    package var hasDescriptors: Bool { descriptors > 0 }

    /// Returns `nil` for a text longer than any name.
    private static func string(_ text: Text?) -> String? {
        guard let text, text.count <= longestPath else { return nil }
        return String(decoding: text, as: UTF8.self)
    }

    /// Decodes the header at the beginning of these bytes. Skips fields that do not have the form of the D-Bus
    /// specification; libdbus refuses such a message.
    fileprivate init(_ prefix: MessagePrefix, _ bytes: UnsafeMutableRawBufferPointer) {
        kind = DBusMessage.Kind(rawValue: CInt(prefix.type)) ?? .unknown
        (serial, expectsReply, bodyBytes) = (prefix.serial, prefix.expectsReply, prefix.bodyBytes)
        (self.bytes, isTooLong) = (prefix.bytes, prefix.isHeaderTooLong)
        let end = min(MessagePrefix.size + prefix.fieldBytes, bytes.count)
        var place = MessagePrefix.size
        func number(at place: Int) -> UInt32 { MessagePrefix.number(at: place, in: bytes, prefix.isBigEndian) }
        while true {
            // A byte for the field, and the signature of its value, which is one letter.
            place = (place + 7) & ~7
            guard place + 5 <= end, bytes[place + 1] == 1 else { return }
            let (field, type) = (bytes[place], bytes[place + 2])
            place += 4
            switch type {
            case UInt8(ascii: "u"):
                guard place + 4 <= end else { return }
                if field == 5 { replySerial = number(at: place) }
                if field == 9 { (descriptors, placeOfDescriptors) = (Int(number(at: place)), place) }
                place += 4
            case UInt8(ascii: "s"), UInt8(ascii: "o"), UInt8(ascii: "g"):
                let isSignature = type == UInt8(ascii: "g")
                let prefix = isSignature ? 1 : 4
                guard place + prefix <= end else { return }
                let length = isSignature ? Int(bytes[place]) : Int(number(at: place))
                guard place + prefix + length < end else { return }
                take(field, Text(rebasing: bytes[place + prefix..<place + prefix + length]))
                place += prefix + length + 1
            // Fields that this version does not know.
            case UInt8(ascii: "y"): place += 1
            case UInt8(ascii: "n"), UInt8(ascii: "q"): place += 2
            case UInt8(ascii: "b"), UInt8(ascii: "i"): place += 4
            // These begin at a multiple of eight.
            case UInt8(ascii: "x"), UInt8(ascii: "t"), UInt8(ascii: "d"): place += 12
            default: return
            }
        }
    }

    private mutating func take(_ field: UInt8, _ text: Text) {
        switch field {
        case 1: texts.path = text
        case 2: texts.interface = text
        case 3: texts.member = text
        case 6: isDirected = true
        case 7: sender = Self.string(text)
        case 8: texts.signature = text
        default: break
        }
    }
}

extension DBusMessage {
    /// Returns a stand-in for the call with its serial and sender, which a response needs. Omits the header's names: a
    /// bus may pass on invalid names, and libdbus would end the process for passing them.
    package static func call(_ header: borrowing MessageHeader) throws(DBusError) -> DBusMessage {
        guard let pointer = onLibdbus({ dbus_message_new_method_call(nil, "/", nil, "Unknown") }) else {
            throw outOfMemory("respond to a call")
        }
        let call = DBusMessage(adopting: pointer)
        dbus_message_set_serial(pointer, header.serial)
        dbus_message_set_no_reply(pointer, header.expectsReply ? 0 : 1)
        guard dbus_message_set_sender(pointer, header.sender) != 0 else { throw outOfMemory("respond to a call") }
        return call
    }
}

// MARK: - Descriptors

extension DBusMessage {
    private final class Descriptors {
        let numbers: [CInt]
        init(_ numbers: [CInt]) { self.numbers = numbers }
        deinit { for number in numbers { close(number) } }
    }

    /// The data slot in which a message keeps the descriptors that came with it.
    private static let slot: dbus_int32_t = {
        var slot: dbus_int32_t = -1
        return onLibdbus { dbus_message_allocate_data_slot(&slot) != 0 } ? slot : -1
    }()

    /// Makes the message own its descriptors if `areTaken`; closes them otherwise.
    fileprivate func attach(_ numbers: [CInt], areTaken: Bool) {
        let descriptors = Descriptors(numbers)
        let kept = areTaken ? descriptors : Descriptors([])
        guard Self.slot >= 0 else { return }
        let retained = Unmanaged.passRetained(kept)
        let isKept = onLibdbus {
            dbus_message_set_data(pointer, Self.slot, retained.toOpaque()) { data in
                if let data { Unmanaged<Descriptors>.fromOpaque(data).release() }
            }
        }
        if isKept == 0 { retained.release() }
    }

    /// The descriptors that came with the message; empty if they were not taken, `nil` if none came.
    var descriptors: [CInt]? {
        guard Self.slot >= 0, let data = onLibdbus({ dbus_message_get_data(pointer, Self.slot) }) else { return nil }
        return Unmanaged<Descriptors>.fromOpaque(data).takeUnretainedValue().numbers
    }

    public var hasDescriptors: Bool { descriptors != nil || dbus_message_contains_unix_fds(pointer) != 0 }
}
