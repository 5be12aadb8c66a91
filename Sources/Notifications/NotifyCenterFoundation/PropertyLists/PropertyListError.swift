/// A value that is not a property list, and so cannot be sent with a distributed notification (CF-U1, CF-U2).
public struct PropertyListError: Error, Sendable, Hashable, CustomStringConvertible {
    private enum Step: Hashable {
        case key(String)
        case index(Int)
    }

    private let root: String
    private var steps: [Step] = []
    let remedy: String

    /// A description of the value, such as `NSNull` or `a key of type Int`.
    public let found: String

    init(_ root: String, found: String, remedy: String) {
        self.root = root
        self.found = found
        self.remedy = remedy
    }

    /// The place of the value, such as `userInfo["a"][2]`. A path of more than 12 steps ends after the first 12, with
    /// “…”.
    public var path: String {
        let shown = steps.reversed().prefix(12).map { step in
            switch step {
            case .key(let key): "[\"\(key)\"]"
            case .index(let index): "[\(index)]"
            }
        }
        return root + shown.joined() + (shown.count < steps.count ? "…" : "")
    }

    /// The place, the value, the allowed types and the remedy, in one line.
    public var description: String {
        "\(path): \(found). A property list holds String, integers up to UInt64.max, Double, Bool, Date, Data, arrays, and "
            + "dictionaries with String keys. \(remedy)"
    }

    /// The same error, seen from the container that holds the value under this key.
    func under(_ key: String) -> PropertyListError { under(.key(key)) }

    /// The same error, seen from the array that holds the value at this index.
    func at(_ index: Int) -> PropertyListError { under(.index(index)) }

    private func under(_ step: Step) -> PropertyListError {
        var error = self
        error.steps.append(step)
        return error
    }
}
