import Foundation

/// The object of a notification as a criterion: text, compared byte by byte (CF-M4), which `String` is not.
struct ObjectText: Hashable, Sendable {
    private let utf8: [UInt8]

    init(_ text: String) { utf8 = Array(text.utf8) }

    /// The text of an object.
    ///
    /// - Throws: ``DistributedObjectError`` where it is no text (CF-X6).
    static func text(_ object: Any?) throws(DistributedObjectError) -> String? {
        switch object {
        case nil: return nil
        case let text as Substring: return String(text)
        // A String too.
        case let text as NSString: return text as String
        case let other?: throw DistributedObjectError(found: "\(type(of: other))")
        }
    }
}

/// A notification's object that is not text, and so means nothing to another process (CF-P3, CF-X6).
public struct DistributedObjectError: Error, Sendable, Hashable, CustomStringConvertible {
    /// Its type.
    public let found: String

    /// What is wrong, and what to do.
    public var description: String {
        "the object of a distributed notification is text, not \(found); give it a String that names it"
    }
}
