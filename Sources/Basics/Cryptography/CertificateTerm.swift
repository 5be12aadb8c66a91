import Basics

/// The expiry of certificates and revocation lists, and when to warn of it. Reads no other field of them.
public enum CertificateTerm {
    /// Programs warn this many days before the end.
    public static let warningDays = 30

    /// The size limit of a file, in bytes. The authorities of a distribution have a quarter of it.
    private static let largestFile = 1 << 20

    /// The earliest end in a PEM file, in seconds since 1970. Blocks the thread on the file system.
    public static func end(ofFile path: String) throws(CertificateFileError) -> Double {
        let content: [UInt8]
        do throws(FileReadError) {
            content = try ReadableFile(path).content(atMost: largestFile)
        } catch {
            throw CertificateFileError(path: path, reason: error.reason)
        }
        guard let end = end(inPEM: content) else {
            throw CertificateFileError(path: path, reason: "it is no PEM file of certificates")
        }
        return end
    }

    /// The earliest end of all certificates or revocation lists in a PEM text. Returns seconds since 1970; `nil` if
    /// there is none, or one is unreadable.
    public static func end(inPEM text: some Sequence<UInt8>) -> Double? {
        var (ends, current): ([Double], [UInt8]?) = ([], nil)
        for line in Array(text).split(whereSeparator: { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: "\r") }) {
            // OpenSSL ignores blanks at the end of a line.
            let blanks = line.reversed().prefix { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }.count
            let line = line.dropLast(blanks)
            switch String(decoding: line, as: UTF8.self) {
            case "-----BEGIN CERTIFICATE-----", "-----BEGIN X509 CRL-----": current = []
            case "-----END CERTIFICATE-----", "-----END X509 CRL-----":
                guard let content = current.flatMap(base64), let end = end(inDER: content) else { return nil }
                ends.append(end)
                current = nil
            default: current?.append(contentsOf: line)
            }
        }
        return current == nil ? ends.min() : nil
    }

    private static func base64(_ text: [UInt8]) -> [UInt8]? {
        let digits = text.prefix { $0 != UInt8(ascii: "=") }
        guard text.count % 4 == 0, text.count - digits.count <= 2 else { return nil }
        return Base64URL.decode(
            digits.map { digit in
                switch digit {
                case UInt8(ascii: "+"): UInt8(ascii: "-")
                case UInt8(ascii: "/"): UInt8(ascii: "_")
                case UInt8(ascii: "-"), UInt8(ascii: "_"): 0
                default: digit
                }
            }
        )
    }

    /// The remaining whole days; negative after the end.
    public static func days(until end: Double, now: Double) -> Int {
        Int(max(-1e6, min(1e6, ((end - now) / 86400).rounded(.down))))
    }

    public static func isNear(_ end: Double, now: Double) -> Bool { days(until: end, now: now) < warningDays }

    /// The remaining time, as a predicate of a sentence.
    public static func words(_ end: Double, now: Double) -> String {
        switch days(until: end, now: now) {
        case ..<0: "has ended"
        case 0: "ends within a day"
        case 1: "ends in 1 day"
        case let days: "ends in \(days) days"
        }
    }

    // MARK: DER

    /// `Certificate` and `CertificateList` (RFC 5280) begin with one or two numbers, an algorithm, a name, the times.
    private static func end(inDER bytes: [UInt8]) -> Double? {
        var outer = DERReader(bytes[...])
        guard let whole = outer.next(0x30) else { return nil }
        var signed = DERReader(whole)
        guard let content = signed.next(0x30) else { return nil }
        var reader = DERReader(content)
        while reader.tag == 0xA0 || reader.tag == 0x02 { guard reader.next() != nil else { return nil } }
        guard reader.next(0x30) != nil, reader.next(0x30) != nil else { return nil }
        if reader.tag == 0x30 {
            guard let validity = reader.next(0x30) else { return nil }
            reader = DERReader(validity)
        }
        guard reader.next() != nil, let tag = reader.tag, tag == 0x17 || tag == 0x18, let text = reader.next() else {
            return nil
        }
        return time(Array(text))
    }

    /// Returns the seconds since 1970 of `UTCTime` (`YYMMDDHHMMSSZ`) or `GeneralizedTime` (four digits of the year).
    public static func time(_ text: [UInt8]) -> Double? {
        let (length, hasCentury) = (text.count - 1, text.count == 15)
        guard length == 12 || hasCentury, text[length] == UInt8(ascii: "Z"),
            text[..<length].allSatisfy({ (0x30...0x39).contains($0) })
        else { return nil }
        let digits = text[..<length].map { Int($0) - 0x30 }
        let pairs = stride(from: 0, to: length, by: 2).map { digits[$0] * 10 + digits[$0 + 1] }
        let year = hasCentury ? pairs[0] * 100 + pairs[1] : pairs[0] + (pairs[0] < 50 ? 2000 : 1900)
        let rest = pairs.suffix(5).map { $0 }
        guard (1...12).contains(rest[0]), (1...31).contains(rest[1]) else { return nil }
        // Days since 1970, counted in years that begin in March.
        let (month, shifted) = ((rest[0] + 9) % 12, rest[0] > 2 ? year : year - 1)
        let days = 365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + (153 * month + 2) / 5 + rest[1] - 1
        return Double(days - 719_468) * 86400 + Double(rest[2] * 3600 + rest[3] * 60 + rest[4])
    }
}

/// A file without a certificate whose end can be read.
public struct CertificateFileError: Error, Hashable, Sendable, CustomStringConvertible {
    let path: String
    let reason: String

    public var description: String { "\(path) cannot be read: \(reason); see that it is the right file" }
}

private struct DERReader {
    private var bytes: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) { self.bytes = bytes }

    var tag: UInt8? { bytes.first }

    /// The content of the next element; `nil` if it has another tag or is incomplete.
    mutating func next(_ wanted: UInt8? = nil) -> ArraySlice<UInt8>? {
        guard let tag = bytes.popFirst(), wanted == nil || tag == wanted, let first = bytes.popFirst() else {
            return nil
        }
        var length = Int(first)
        if first >= 0x80 {
            let count = Int(first & 0x7F)
            guard (1...3).contains(count), bytes.count >= count else { return nil }
            length = bytes.prefix(count).reduce(0) { $0 << 8 | Int($1) }
            bytes = bytes.dropFirst(count)
        }
        guard bytes.count >= length else { return nil }
        defer { bytes = bytes.dropFirst(length) }
        return bytes.prefix(length)
    }
}
