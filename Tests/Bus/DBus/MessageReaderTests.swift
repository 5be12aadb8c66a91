import CDBus
import Glibc
import Testing

@testable import DBus

/// Sends a message with descriptors. Returns whether all of its bytes are sent.
func send(_ bytes: [UInt8], with descriptors: [CInt], to socket: CInt) -> Bool {
    var control: [Int] = [16 + 4 * descriptors.count, Int(SOL_SOCKET) | 1 << 32]
    control += Array(repeating: 0, count: (descriptors.count + 1) / 2)
    control.withUnsafeMutableBytes { control in
        for (index, descriptor) in descriptors.enumerated() {
            control.storeBytes(of: descriptor, toByteOffset: 16 + 4 * index, as: CInt.self)
        }
    }
    let sent = bytes.withUnsafeBytes { bytes in
        control.withUnsafeMutableBytes { control in
            var piece = iovec(iov_base: .init(mutating: bytes.baseAddress), iov_len: bytes.count)
            return withUnsafeMutablePointer(to: &piece) { piece in
                var message = msghdr()
                (message.msg_iov, message.msg_iovlen) = (piece, 1)
                (message.msg_control, message.msg_controllen) = (control.baseAddress, control.count)
                return sendmsg(socket, &message, CInt(MSG_NOSIGNAL))
            }
        }
    }
    return sent == bytes.count
}

@Suite("Messages cut from a bus's socket")
struct MessageReaderTests {
    /// A method call in bytes, as a bus forwards it.
    struct RawCall {
        var isBigEndian = false
        var version: UInt8 = 1
        var type: UInt8 = 1
        var serial: UInt32 = 7
        var path = "/"
        var member = "Store"
        var text = "content"
        var destination: String?
        /// An unknown header field, with a value of this type.
        var unknownField: Character?
        var replySerial: UInt32?
        var descriptors: UInt32?
        /// Replaces the true length of the body.
        var bodyLength: UInt32?
        /// Replaces the true length of the header fields.
        var fieldsLength: UInt32?

        var bytes: [UInt8] {
            func number(_ value: UInt32) -> [UInt8] {
                withUnsafeBytes(of: isBigEndian ? value.bigEndian : value.littleEndian, Array.init)
            }
            func aligned(_ bytes: [UInt8]) -> [UInt8] { bytes + Array(repeating: 0, count: -bytes.count & 7) }
            var fields: [UInt8] = []
            if let unknownField {
                let sizes: [Character: Int] = ["y": 1, "n": 2, "q": 2, "b": 4, "i": 4, "u": 4]
                fields = [200, 1] + Array(unknownField.utf8) + [0]
                // The largest types are aligned to eight bytes.
                fields += Array(repeating: 0, count: sizes[unknownField] ?? 12)
            }
            var texts: [(UInt8, String, String)] = [(1, "o", path), (3, "s", member), (7, "s", ":1.7")]
            if let destination { texts.append((6, "s", destination)) }
            for (code, type, value) in texts {
                fields = aligned(fields) + [code, 1] + Array(type.utf8) + [0]
                fields += number(UInt32(value.utf8.count)) + Array(value.utf8) + [0]
            }
            fields = aligned(fields) + [8, 1] + Array("g".utf8) + [0, 1] + Array("s".utf8) + [0]
            if let replySerial { fields = aligned(fields) + [5, 1] + Array("u".utf8) + [0] + number(replySerial) }
            if let descriptors { fields = aligned(fields) + [9, 1] + Array("u".utf8) + [0] + number(descriptors) }
            let body = number(UInt32(text.utf8.count)) + Array(text.utf8) + [0]
            let start = [UInt8(ascii: isBigEndian ? "B" : "l"), type, 0, version]
            let lengths = number(bodyLength ?? UInt32(body.count)) + number(serial)
            return aligned(start + lengths + number(fieldsLength ?? UInt32(fields.count)) + fields) + body
        }
    }

    /// A connected pair of sockets, and the reader of one end.
    final class Wire {
        let reader = MessageReader()
        let (bus, service): (CInt, CInt)

        init() throws {
            var ends: [CInt] = [-1, -1]
            try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
            (bus, service) = (ends[0], ends[1])
        }

        deinit { for end in [bus, service] { close(end) } }

        /// Sends bytes, as many as the socket buffer holds, and reads them.
        func arrive(_ bytes: some Sequence<UInt8>) throws {
            let bytes = Array(bytes)
            try #require(write(bus, bytes, bytes.count) == bytes.count)
            #expect(reader.fill(from: service))
        }

        /// Sends a message with descriptors, and reads it.
        func arrive(_ bytes: [UInt8], with descriptors: [CInt]) throws {
            try #require(send(bytes, with: descriptors, to: bus))
            #expect(reader.fill(from: service))
        }

        /// Returns the member and the text of each message that has arrived.
        func taken() -> [String] {
            var taken: [String] = []
            while let arrival = reader.next({ _ in .read(nil) }) {
                taken.append("\(arrival.message.member ?? "-") \(arrival.message.firstString ?? "-")")
            }
            return taken
        }
    }

    @Test("a message cut at any byte is handed on when its last byte has arrived", arguments: [false, true])
    func halves(isBigEndian: Bool) throws {
        let bytes = RawCall(isBigEndian: isBigEndian).bytes
        let wire = try Wire()
        for cut in 1..<bytes.count {
            try wire.arrive(bytes[..<cut])
            #expect(wire.taken() == [], "cut at \(cut)")
            try wire.arrive(bytes[cut...])
            #expect(wire.taken() == ["Store content"], "cut at \(cut)")
            #expect(wire.reader.isEmpty)
        }
        for byte in bytes { try wire.arrive([byte]) }
        #expect(wire.taken() == ["Store content"])
    }

    @Test("messages that arrive together are handed on in order, without refused ones")
    func order() throws {
        let wire = try Wire()
        let calls = (0..<9).map { RawCall(isBigEndian: $0 % 2 == 1, member: "M\($0)").bytes }
        try wire.arrive(calls.joined())
        var members: [String] = []
        while let arrival = wire.reader.next({ $0.member == "M4" ? .passOver : .read(nil) }) {
            members.append(arrival.message.member ?? "-")
        }
        #expect(members == [0, 1, 2, 3, 5, 6, 7, 8].map { "M\($0)" })
    }

    @Test("the judge sees each field of a header, beside unknown ones and without the body", arguments: [false, true])
    func header(isBigEndian: Bool) throws {
        func judged(_ bytes: some Sequence<UInt8>) throws -> [String] {
            let wire = try Wire()
            try wire.arrive(bytes)
            var seen: [String] = []
            let message = wire.reader.next { header in
                seen.append("\(header.sender ?? "-") \(header.path ?? "-") \(header.member ?? "-") \(header.signature)")
                seen.append("\(header.serial) \(header.bodyBytes) \(header.expectsReply)")
                return .read(nil)
            }
            if message != nil { seen.append("handed on") }
            return seen
        }
        let call = RawCall(isBigEndian: isBigEndian, path: "/org/example")
        let expected = [":1.7 /org/example Store s", "7 12 true"]
        #expect(try judged(call.bytes.dropLast(12)) == expected)
        for type in "ybnqiuxtd" {
            var call = call
            call.unknownField = type
            let whole = try judged(call.bytes)
            #expect(whole == expected + ["handed on"], "with an unknown field of type \(type)")
        }
    }

    @Test("an overlong message is skipped as it arrives")
    func tooLong() throws {
        // Their headers claim lengths above the maximum.
        let overlong = [
            RawCall(fieldsLength: 64 << 20 + 1), RawCall(fieldsLength: .max), RawCall(bodyLength: .max),
            RawCall(bodyLength: 128 << 20), RawCall(isBigEndian: true, bodyLength: .max, fieldsLength: .max),
        ]
        for call in overlong {
            let wire = try Wire()
            try wire.arrive(RawCall(member: "Before").bytes + call.bytes)
            #expect(wire.taken() == ["Before content"])
            for _ in 0..<10 {
                try wire.arrive(Array(repeating: 0, count: 100_000))
                #expect(wire.taken() == [] && wire.reader.isEmpty, "\(call)")
            }
            #expect(!wire.reader.isCorrupt && wire.reader.capacity < 1 << 20, "\(call)")
        }
    }

    @Test("a message with an overlong header is skipped once its length has arrived")
    func longHeader() throws {
        let wire = try Wire()
        let bytes = RawCall(path: "/" + String(repeating: "a", count: 20_000)).bytes
        var judged = 0
        for part in [bytes[..<16], bytes[16..<10_000], bytes[10_000...]] {
            try wire.arrive(part)
            let arrival = wire.reader.next { header in
                judged += 1
                #expect(header.isTooLong && header.bytes == bytes.count)
                return .read(nil)
            }
            if arrival != nil { Issue.record("it is handed on") }
            #expect(wire.reader.isEmpty)
        }
        #expect(judged == 1)
        try wire.arrive(RawCall().bytes)
        #expect(wire.taken() == ["Store content"])
    }

    @Test("the judge sees the reply serial, the sender, and whether the message is directed")
    func directed() throws {
        let wire = try Wire()
        let calls = [
            RawCall(type: 2, replySerial: 77), RawCall(type: 4, destination: ":1.9"),
            // The judge sees the part of a long header that has arrived.
            RawCall(path: "/" + String(repeating: "a", count: 20_000)),
        ]
        try wire.arrive(calls.map(\.bytes).joined())
        var seen: [String] = []
        while wire.reader.next({
            seen.append("\($0.replySerial) \($0.isDirected) \($0.sender ?? "-")")
            return .passOver
        }) != nil {}
        #expect(seen == ["77 false :1.7", "0 true :1.7", "0 false :1.7"])
    }

    // MARK: Ends and failures

    @Test("the end is reported, and a failed read leaves libdbus nothing to read")
    func end() throws {
        let ending = try Wire()
        #expect(ending.reader.fill(from: ending.service), "nothing has arrived")
        shutdown(ending.bus, CInt(SHUT_WR))
        #expect(!ending.reader.fill(from: ending.service))
        let wire = try Wire()
        #expect(wire.reader.fill(from: -1))
        #expect(wire.reader.isCorrupt)
        try wire.arrive(RawCall().bytes)
        #expect(wire.taken() == [] && wire.reader.isEmpty)
        var byte: UInt8 = 0
        #expect(recv(wire.service, &byte, 1, CInt(MSG_DONTWAIT)) == -1, "it was discarded")
        shutdown(wire.bus, CInt(SHUT_WR))
        #expect(!wire.reader.fill(from: wire.service))
    }

    // MARK: Secrets

    /// Whether the reader's buffer contains the text anywhere.
    private func holds(_ text: String, _ reader: MessageReader) -> Bool {
        guard let buffer = reader.buffer else { return false }
        let bytes = UnsafeRawBufferPointer(start: buffer, count: reader.capacity)
        let sought = Array(text.utf8)
        return bytes.indices.dropLast(sought.count - 1).contains { place in
            bytes[place] == sought[0] && memcmp(bytes.baseAddress! + place, sought, sought.count) == 0
        }
    }

    @Test("a call leaves nothing in the buffer, admitted or refused, wherever it was cut", arguments: [true, false])
    func wiped(isTaken: Bool) throws {
        let secret = "hunter2hunter2"
        let call = RawCall(text: secret).bytes
        for cut in [call.count, call.count - 1] {
            let wire = try Wire()
            // The filler forces the second part into another read.
            let filler = RawCall(type: 2, text: String(repeating: "x", count: 150_000), replySerial: 1).bytes
            try wire.arrive(filler + call[..<cut])
            if cut < call.count { #expect(holds(secret, wire.reader)) }
            var taken = 0
            func take() {
                while let arrival = wire.reader.next({ header in
                    guard header.kind == .methodCall, isTaken else { return .passOver }
                    return .read { _, _ in }
                }) {
                    #expect(arrival.message.firstString == secret)
                    taken += 1
                }
            }
            take()
            if cut < call.count {
                try wire.arrive(call[cut...])
                take()
            }
            #expect(taken == (isTaken ? 1 : 0))
            #expect(!holds(secret, wire.reader))
        }
    }

    @Test("bytes that cannot be a message end the connection, and none of them is read")
    func corrupt() throws {
        // Messages without a readable length: the bytes after them cannot be split into messages either.
        let corruptions: [[UInt8]] = [
            RawCall(version: 2).bytes, RawCall(isBigEndian: true, version: 0).bytes,
            [UInt8(ascii: "x")] + RawCall().bytes.dropFirst(),
        ]
        for corruption in corruptions {
            let wire = try Wire()
            try wire.arrive(RawCall(member: "Before").bytes + corruption)
            #expect(wire.taken() == ["Before content"])
            #expect(wire.reader.isCorrupt)
            try wire.arrive(RawCall().bytes)
            #expect(wire.taken() == [])
        }
    }

    @Test("the longest D-Bus message is accepted, and one byte more is not")
    func longest() throws {
        func prefix(_ body: UInt32, _ fields: UInt32) -> MessagePrefix? {
            var bytes = Array(RawCall(bodyLength: body, fieldsLength: fields).bytes.prefix(16))
            return bytes.withUnsafeMutableBytes { MessagePrefix($0) }
        }
        #expect(prefix(128 << 20 - 16, 0)?.bytes == 128 << 20)
        #expect(prefix(0, 64 << 20)?.headerBytes == 64 << 20 + 16)
        #expect(prefix(64 << 20 - 16, 64 << 20)?.bytes == 128 << 20)
        for (body, fields) in [(128 << 20 - 16, 0), (0, 64 << 20), (64 << 20 - 16, 64 << 20)] as [(UInt32, UInt32)] {
            #expect(prefix(body, fields)?.isMessage == true)
            #expect(prefix(body + 1, fields)?.isMessage == (body == 0))
            #expect(prefix(body, fields + 1)?.isMessage == false)
        }
    }

    @Test("a message that libdbus refuses is skipped, and the next one is handed on")
    func malformed() throws {
        let wire = try Wire()
        let calls = [
            RawCall(serial: 0, member: "NoSerial"), RawCall(isBigEndian: true, serial: 0, member: "NoSerial"),
            RawCall(path: "nowhere", member: "InvalidPath"), RawCall(member: "1"),
            // Unknown message types.
            RawCall(type: 0), RawCall(type: 9), RawCall(member: "Last"),
        ]
        try wire.arrive(calls.map(\.bytes).joined())
        let taken = wire.taken()
        #expect(taken.last == "Last content")
        #expect(!taken.contains { $0.hasPrefix("NoSerial") || $0.hasPrefix("InvalidPath") || $0.hasPrefix("1") })
        #expect(!wire.reader.isCorrupt)
    }

    /// Sends one message of many megabytes, followed by a small one.
    private func large(_ verdict: MessageReader.Verdict, size: Int) throws -> (members: [String], wire: Wire) {
        let wire = try Wire()
        let small = RawCall(member: "Small").bytes
        let head = RawCall(member: "Large", text: "", bodyLength: UInt32(size + 5)).bytes.dropLast(5)
        let length = withUnsafeBytes(of: UInt32(size).littleEndian, Array.init)
        let bytes = Array(head) + length + Array(repeating: UInt8(ascii: "x"), count: size) + [0] + small
        _ = fcntl(wire.bus, F_SETFL, O_NONBLOCK)
        var sent = 0
        var members: [String] = []
        while members.last != "Small" {
            let count = bytes.withUnsafeBytes { write(wire.bus, $0.baseAddress! + sent, bytes.count - sent) }
            if count > 0 { sent += count }
            try #require(wire.reader.fill(from: wire.service))
            while let arrival = wire.reader.next({ $0.member == "Large" ? verdict : .read(nil) }) {
                members.append(arrival.message.member ?? "-")
                // At most two copies at a time: the message, and the value made from it.
                #expect(wire.reader.capacity < 1 << 20)
                if members == ["Large"] { #expect(arrival.message.firstString?.utf8.count == size) }
            }
        }
        return (members, wire)
    }

    @Test("the memory of a huge message is freed, be it refused, read or overlong")
    func largeMessages() throws {
        let cases: [(MessageReader.Verdict, Int, [String])] = [
            (.passOver, 16 << 20, ["Small"]), (.read(nil), 120 << 20, ["Large", "Small"]),
            // Over 128 MiB.
            (.read(nil), 128 << 20, ["Small"]),
        ]
        for (verdict, size, expected) in cases {
            let (members, wire) = try large(verdict, size: size)
            #expect(members == expected)
            try wire.arrive(RawCall().bytes)
            #expect(wire.taken() == ["Store content"])
            #expect(wire.reader.capacity < 1 << 20)
        }
    }

    /// A pipe that tells whether the reader has closed its copies of the write end.
    final class DescriptorPipe {
        private let readEnd: CInt
        let writeEnd: CInt

        init() throws {
            var ends: [CInt] = [-1, -1]
            try #require(pipe(&ends) == 0)
            (readEnd, writeEnd) = (ends[0], ends[1])
        }

        deinit { close(readEnd) }

        /// Closes this write end. Returns whether it was the last one. Call it once.
        func closeLast() -> Bool {
            close(writeEnd)
            var byte: UInt8 = 0
            _ = fcntl(readEnd, F_SETFL, O_NONBLOCK)
            return read(readEnd, &byte, 1) == 0
        }
    }

    @Test("descriptors are closed with their message, and a wrong number is not handed on")
    func descriptors() throws {
        for count in [1, 2, 253] {
            let (wire, pipe) = (try Wire(), try DescriptorPipe())
            let call = RawCall(member: "Some", descriptors: UInt32(count)).bytes
            for isRead in [true, false] {
                try wire.arrive(call, with: Array(repeating: pipe.writeEnd, count: count))
                try wire.arrive(RawCall(member: "None").bytes)
                var described: [String] = []
                while let arrival = wire.reader.next({ !$0.hasDescriptors || isRead ? .read(nil) : .passOver }) {
                    described.append("\(arrival.message.member ?? "-") \(arrival.message.hasDescriptors)")
                }
                #expect(described == (isRead ? ["Some true", "None false"] : ["None false"]), "\(count)")
            }
            #expect(pipe.closeLast(), "\(count)")
        }
        for wrongCount in [0, 2] as [UInt32] {
            let (wire, pipe) = (try Wire(), try DescriptorPipe())
            try wire.arrive(RawCall(type: 2, replySerial: 1, descriptors: wrongCount).bytes, with: [pipe.writeEnd])
            while let arrival = wire.reader.next({ _ in .read(nil) }) {
                #expect(arrival.message.descriptors?.isEmpty ?? true, "\(wrongCount)")
            }
            #expect(pipe.closeLast(), "\(wrongCount)")
        }
    }

    // The result does not matter; the reader must not trap.
    @Test("randomly changed bytes neither trap nor loop", arguments: 0..<8)
    func random(seed: UInt64) throws {
        var random = Random(state: seed)
        for _ in 0..<500 {
            let wire = try Wire()
            var bytes = (0..<3).flatMap { number in
                RawCall(isBigEndian: random.next() % 2 == 0, member: "M\(number)", descriptors: number == 1 ? 1 : nil)
                    .bytes
            }
            for _ in 0..<(1 + random.next() % 6) {
                bytes[Int(random.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: random.next())
            }
            let cut = Int(random.next() % UInt64(bytes.count))
            for part in [bytes[..<cut], bytes[cut...]] where !part.isEmpty {
                try wire.arrive(part)
                while let arrival = wire.reader.next({ $0.serial % 2 == 0 ? .passOver : .read(nil) }) {
                    _ = try? arrival.message.arguments()
                }
            }
        }
    }

    /// SplitMix64.
    private struct Random {
        var state: UInt64

        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var value = state
            value = (value ^ value >> 30) &* 0xBF58_476D_1CE4_E5B9
            value = (value ^ value >> 27) &* 0x94D0_49BB_1331_11EB
            return value ^ value >> 31
        }
    }
}
