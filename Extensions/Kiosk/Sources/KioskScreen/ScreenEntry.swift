/// The text that a person or a badge reader has typed since the last Return.
///
/// A badge reader is a keyboard that types a number and Return within a moment.
package struct ScreenEntry: Sendable, Hashable {
    /// More than any number, PIN or password may have, in bytes. Further text does not count.
    static let maximumLength = 1024
    /// The longest time between two keys of a reader, in milliseconds. People need twice as long.
    static let readerPause: UInt32 = 60
    /// The shortest number of a badge.
    static let badgeLength = 4

    private var bytes: [UInt8] = []
    /// Where the part of the text begins that was typed without a pause.
    private var quickStart = 0
    /// When the last key was pressed; `nil` after a touch, which no reader makes.
    private var last: UInt32?

    var isEmpty: Bool { bytes.isEmpty }
    /// The number of characters.
    var count: Int { bytes.count { $0 & 0xC0 != 0x80 } }

    /// - Parameter time: In milliseconds; the clock starts again after 2^32.
    mutating func append(_ text: String, at time: UInt32?) {
        if !isQuick(at: time) { quickStart = bytes.count }
        last = time
        // At once, because a growing array leaves copies of the secret behind.
        if bytes.capacity == 0 { bytes.reserveCapacity(Self.maximumLength) }
        if bytes.count + text.utf8.count <= Self.maximumLength { bytes += text.utf8 }
    }

    /// Removes the last character.
    mutating func erase() {
        while let byte = bytes.popLast(), byte & 0xC0 == 0x80 {}
        quickStart = bytes.count
        last = nil
    }

    mutating func clear() {
        for index in bytes.indices { bytes[index] = 0 }
        self = ScreenEntry()
    }

    /// Takes the text at a Return.
    ///
    /// - Returns: what was typed, and whether it is the number of a badge. A number replaces the text before it.
    mutating func take(at time: UInt32?) -> (text: String, isBadge: Bool) {
        defer { clear() }
        let isBadge = isQuick(at: time) && bytes.count - quickStart >= Self.badgeLength
        return (String(decoding: isBadge ? bytes[quickStart...] : bytes[...], as: UTF8.self), isBadge)
    }

    private func isQuick(at time: UInt32?) -> Bool {
        guard let time, let last else { return false }
        return time &- last <= Self.readerPause
    }
}
