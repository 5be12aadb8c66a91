/// Finds what a misspelt key was meant to be.
enum KeySuggestion {
    /// The key that is closest to `word`: but for case and separators the same, or at most two letters away and not half of
    /// a short word. `nil` where none is.
    static func nearest(to word: String, among keys: [String]) -> String? {
        let letters = simplified(word)
        guard !letters.isEmpty, letters.count <= 100 else { return nil }
        return
            keys
            .map { key in (key: key, distance: distance(letters, simplified(key)), length: key.utf8.count) }
            .filter { $0.distance <= min(2, $0.length / 4) }
            .min { ($0.distance, $0.key) < ($1.distance, $1.key) }?
            .key
    }

    /// Lower case, without what separates words: `shared_device_mode` is `sharedDeviceMode`.
    private static func simplified(_ word: String) -> [UInt8] {
        word.lowercased().utf8.filter { $0 != UInt8(ascii: "_") && $0 != UInt8(ascii: "-") }
    }

    /// The letters to insert, remove, replace, or swap with the next, to make one word of the other.
    private static func distance(_ left: [UInt8], _ right: [UInt8]) -> Int {
        var rows = [Array(0...right.count)]
        for (row, letter) in left.enumerated() {
            var next = [row + 1]
            for (column, other) in right.enumerated() {
                var best = min(
                    rows[row][column + 1] + 1,
                    next[column] + 1,
                    rows[row][column] + (letter == other ? 0 : 1)
                )
                if row > 0, column > 0, letter == right[column - 1], left[row - 1] == other {
                    best = min(best, rows[row - 1][column - 1] + 1)
                }
                next.append(best)
            }
            rows.append(next)
        }
        return rows[left.count][right.count]
    }
}
