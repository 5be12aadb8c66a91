import Foundation

/// A dictionary that makes what it holds when asked for it, and keeps nothing.
final class OwnDictionary: NSDictionary {
    override var count: Int { 2 }

    override func keyEnumerator() -> NSEnumerator {
        NSArray(array: ["array", "dictionary"].map { NSMutableString(string: $0) }).objectEnumerator()
    }

    override func object(forKey key: Any) -> Any? {
        "\(key)" == "array" ? OwnArray(count: 3) : NSDictionary(dictionary: ["n": 1])
    }
}

/// Texts, and in third place another of its kind. Without end, it is an array of others that are without end too.
final class OwnArray: NSArray {
    private let length: Int
    private let isEndless: Bool

    init(count: Int, isEndless: Bool = false) {
        length = count
        self.isEndless = isEndless
        super.init(objects: nil, count: 0)
    }

    override var count: Int { length }

    override func object(at index: Int) -> Any {
        if isEndless { return OwnArray(count: 1, isEndless: true) }
        return index == 2 ? OwnArray(count: 1) : NSMutableString(string: "\(index)")
    }

    // What an array must have, and nobody calls.

    required init(objects: UnsafePointer<AnyObject>?, count: Int) {
        (length, isEndless) = (count, false)
        super.init(objects: objects, count: count)
    }

    required convenience init(arrayLiteral elements: Any...) { self.init(count: elements.count) }
    required init?(coder: NSCoder) { nil }
}

/// An object that is none of Foundation's.
final class PlainObject {}
