import Foundation

/// A dictionary that makes each value on demand and stores nothing.
final class OwnDictionary: NSDictionary {
    override var count: Int { 2 }

    override func keyEnumerator() -> NSEnumerator {
        NSArray(array: ["array", "dictionary"].map { NSMutableString(string: $0) }).objectEnumerator()
    }

    override func object(forKey key: Any) -> Any? {
        "\(key)" == "array" ? OwnArray(count: 3) : NSDictionary(dictionary: ["n": 1])
    }
}

/// An array of texts whose third element is another such array. In the endless form, it contains an array that is
/// endless too.
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

    // Required by NSArray; never called.

    required init(objects: UnsafePointer<AnyObject>?, count: Int) {
        (length, isEndless) = (count, false)
        super.init(objects: objects, count: count)
    }

    required convenience init(arrayLiteral elements: Any...) { self.init(count: elements.count) }
    required init?(coder: NSCoder) { nil }
}

/// An object that does not come from Foundation.
final class PlainObject {}
