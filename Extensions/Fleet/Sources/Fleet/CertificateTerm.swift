import FoundationEssentials

/// The expiry of certificates and revocation lists, and when to warn of it. Reads no other field of them.
package enum CertificateTerm {
    /// Programs warn this many days before the end.
    package static let warningDays = 30

    /// The earliest end of all certificates or revocation lists in a PEM text. Returns seconds since 1970; `nil` if
    /// there is none, or one is unreadable.
    package static func end(inPEM text: some Sequence<UInt8>) -> Double? {
        var (ends, current): ([Double], String?) = ([], nil)
        for line in String(decoding: Array(text), as: UTF8.self).split(whereSeparator: \.isNewline) {
            switch line {
            case "-----BEGIN CERTIFICATE-----", "-----BEGIN X509 CRL-----": current = ""
            case "-----END CERTIFICATE-----", "-----END X509 CRL-----":
                guard let content = current.flatMap({ Data(base64Encoded: $0) }), let end = end(inDER: Array(content))
                else { return nil }
                ends.append(end)
                current = nil
            default: current?.append(contentsOf: line)
            }
        }
        return ends.min()
    }

    /// The earlier end of a program's certificate and its authority's. Blocks the thread on the file system. Returns
    /// seconds since 1970; `nil` if no end can be read from either file.
    package static func end(of configuration: FleetConfiguration) -> Double? {
        [configuration.certificate, configuration.authority].compactMap { path in
            (try? FleetFiles.read(path, atMost: FleetConfiguration.largest)).flatMap { $0 }.flatMap(end(inPEM:))
        }.min()
    }

    /// The remaining whole days; negative after the end.
    package static func days(until end: Double, now: Double) -> Int {
        Int(max(-1e6, min(1e6, ((end - now) / 86400).rounded(.down))))
    }

    package static func isNear(_ end: Double, now: Double) -> Bool { days(until: end, now: now) < warningDays }

    /// The remaining time, as a predicate of a sentence.
    package static func words(_ end: Double, now: Double) -> String {
        switch days(until: end, now: now) {
        case ..<0: "has ended"
        case 0: "ends within a day"
        case 1: "ends in 1 day"
        case let days: "ends in \(days) days"
        }
    }

    // MARK: DER

    /// `Certificate` and `CertificateList` (RFC 5280) begin alike: one or two numbers, an algorithm, a name, then the
    /// times.
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

    /// Parses `UTCTime` (`YYMMDDHHMMSSZ`) or `GeneralizedTime`, with a year of four digits. Returns seconds since 1970;
    /// `nil` for any other text.
    package static func time(_ text: [UInt8]) -> Double? {
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

/// The reported ends of a fleet's certificates. Ended ones are counted separately, so that a device that reports a past
/// end does not hide the end of another.
package struct CertificateEnds: Sendable {
    /// The next end, in seconds since 1970.
    package private(set) var next: Double?
    /// The number that end within ``CertificateTerm/warningDays``.
    package private(set) var near: UInt64 = 0
    package private(set) var ended: UInt64 = 0

    package init() {}

    package mutating func add(_ end: Double, now: Double) {
        guard end > now else {
            ended += 1
            return
        }
        next = min(next ?? end, end)
        if CertificateTerm.isNear(end, now: now) { near += 1 }
    }

    /// The warning for an operator; `nil` if no certificate ends soon.
    package func warning(now: Double) -> String? {
        var parts: [String] = []
        if ended > 0 { parts.append("certificates of \(Self.devices(ended)) have ended") }
        if near > 0, let next {
            parts.append(
                "certificates of \(Self.devices(near)) end within \(CertificateTerm.warningDays) days, and the first "
                    + CertificateTerm.words(next, now: now)
            )
        }
        return parts.isEmpty ? nil : parts.joined(separator: ", ") + "; enrol them again"
    }

    private static func devices(_ count: UInt64) -> String { count == 1 ? "1 device" : "\(count) devices" }
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
