import Basics

/// Why a managed configuration or an app's manifest cannot be read or watched: the file, the key and the remedy.
public struct ManagedConfigurationError: Error, Sendable, Hashable, CustomStringConvertible, Encodable {
    /// The names are in JSON.
    public enum Code: String, Sendable, Encodable {
        /// The file exists but cannot be read.
        case unreadable
        /// An untrusted user may write to the file.
        case insecure
        case tooLarge
        /// The content is not a JSON object.
        case invalidJSON
        /// The content is a profile for iOS: one in place of the configuration, or one without a possible conversion.
        case profile
        case wrongType
        /// A key's value has the right type but is not valid.
        case invalidValue
        /// Two values of one key, or two files, contradict each other.
        case contradiction
        /// The system cannot report changes to the file.
        case cannotWatch
    }

    public let code: Code
    public let file: String
    /// The key whose value is wrong, if the problem is about one.
    public let key: String?
    public let message: String
    public let remedy: String
    /// The app of the manifest, if its identifier can be read.
    public var app: String?
    /// The mistakes in the values of other keys.
    public internal(set) var further: [ManagedConfigurationError] = []

    /// The names are in JSON.
    private enum CodingKeys: CodingKey { case code, file, key, message, remedy }

    public init(_ code: Code, _ file: String, key: String? = nil, _ message: String, remedy: String) {
        self.code = code
        self.file = file
        self.key = key
        self.message = message
        self.remedy = remedy
    }

    /// This mistake, and those in the values of other keys.
    public var all: [ManagedConfigurationError] { [self] + further }

    /// One line: the file, the key, the problem, and the remedy.
    public var description: String {
        let place = key.map { "\(file): \"\($0)\"" } ?? file
        return "\(place): \(message); \(remedy)"
    }
}

extension ManagedConfigurationError {
    static func cannotWatch(_ path: String, _ error: Problem) -> Self {
        Self(
            .cannotWatch,
            path,
            "the system cannot tell of changes to it: \(error)",
            remedy: "raise fs.inotify.max_user_instances or max_user_watches, see that the directory may be read, and "
                + "start the broker again"
        )
    }
}

/// A probable mistake. The properties' names are the keys of JSON that programs rely on.
public struct KeyWarning: Sendable, Hashable, CustomStringConvertible, Encodable {
    /// The key that the warning is about, if it is about one.
    public let key: String?
    /// A sentence. Its subject is the key, if there is one.
    public let message: String

    public init(key: String?, message: String) { (self.key, self.message) = (key, message) }

    public var description: String { (key.map { "\"\($0)\" " } ?? "") + message }

    /// Warnings about unknown keys, each with the known key that was probably meant.
    public static func unknown(_ keys: [String], among known: [String]) -> [KeyWarning] {
        keys.prefix(20).map { key in
            let meant = KeySuggestion.nearest(to: key, among: known).map { "; is “\($0)” meant?" } ?? ""
            return KeyWarning(key: key, message: "means nothing\(meant)")
        }
    }
}

private enum KeySuggestion {
    /// The closest key: it differs in case and separators only, or by at most two letters and a quarter of its length.
    static func nearest(to word: String, among keys: [String]) -> String? {
        let letters = simplified(word)
        guard !letters.isEmpty, letters.count <= 100 else { return nil }
        return keys.map { key in (key: key, distance: distance(letters, simplified(key)), length: key.utf8.count) }
            .filter { $0.distance <= min(2, $0.length / 4) }.min { ($0.distance, $0.key) < ($1.distance, $1.key) }?.key
    }

    /// Lower case without separators, so that `shared_device_mode` equals `sharedDeviceMode`.
    private static func simplified(_ word: String) -> [UInt8] {
        word.lowercased().utf8.filter { $0 != UInt8(ascii: "_") && $0 != UInt8(ascii: "-") }
    }

    /// The number of letters to insert, remove, replace, or swap with the next, to turn one word into the other.
    private static func distance(_ left: [UInt8], _ right: [UInt8]) -> Int {
        var rows = [Array(0...right.count)]
        for (row, letter) in left.enumerated() {
            var next = [row + 1]
            for (column, other) in right.enumerated() {
                let replaced = rows[row][column] + (letter == other ? 0 : 1)
                var best = min(rows[row][column + 1] + 1, next[column] + 1, replaced)
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
