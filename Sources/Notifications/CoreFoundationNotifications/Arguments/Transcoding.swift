/// The text of UTF-16 code units; `nil` where a surrogate stands alone.
///
/// `String(decoding:as:)` takes about ten times as long, and puts U+FFFD in such a surrogate's place.
func transcode(_ units: UnsafeBufferPointer<UInt16>) -> String? {
    var count = 0
    guard forEachScalar(in: units, { count += UTF8.width($0) }) else { return nil }
    return String(unsafeUninitializedCapacity: count) { utf8 in
        var end = 0
        _ = forEachScalar(in: units) { scalar in
            for byte in scalar.utf8 {
                utf8[end] = byte
                end += 1
            }
        }
        return end
    }
}

/// Returns whether it went through all: it ends at a surrogate that stands alone.
private func forEachScalar(in units: UnsafeBufferPointer<UInt16>, _ body: (Unicode.Scalar) -> Void) -> Bool {
    var index = 0
    while index < units.count {
        if let scalar = Unicode.Scalar(units[index]) {
            body(scalar)
            index += 1
        } else {
            guard index + 1 < units.count, let scalar = scalar(units[index], units[index + 1]) else { return false }
            body(scalar)
            index += 2
        }
    }
    return true
}

/// The scalar of a surrogate pair; `nil` for what is none.
private func scalar(_ lead: UInt16, _ trail: UInt16) -> Unicode.Scalar? {
    guard UTF16.isLeadSurrogate(lead), UTF16.isTrailSurrogate(trail) else { return nil }
    return Unicode.Scalar(0x10000 + (UInt32(lead & 0x3FF) << 10 | UInt32(trail & 0x3FF)))
}
