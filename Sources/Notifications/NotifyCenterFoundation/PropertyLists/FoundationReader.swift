import Foundation
import NotifyCenter

/// Reads property lists out of `Any`.
///
/// Objects and Swift's own values go different ways, because a cast between the two answers “yes” too often: an
/// `NSNumber(value: 1)` is a `Bool` by `as?`.
struct FoundationReader {
    /// What a path begins with.
    let root: String

    /// The wire carries less; this bound keeps a value that contains itself from exhausting the stack.
    private static let maximumDepth = 64

    func value(_ value: Any, depth: Int) throws(PropertyListError) -> PropertyListValue {
        guard depth <= Self.maximumDepth else {
            throw error("nested more than \(Self.maximumDepth) deep, or contained in itself", "Flatten it.")
        }
        if type(of: value) is AnyClass { return try object(value as AnyObject, depth: depth) }
        switch value {
        case let optional as any AnyOptional:
            guard let wrapped = optional.wrapped else { throw error("nil", "Leave it out.") }
            return try self.value(wrapped, depth: depth)
        case let text as String: return .string(text)
        case let text as Substring: return .string(String(text))
        case let flag as Bool: return .bool(flag)
        case let number as any BinaryInteger: return try integer(number)
        case let number as Double: return .double(number)
        case let number as Float: return .double(Double(number))
        case let number as CGFloat: return .double(Double(number))
        case let date as Date: return .date(PropertyListDate(date))
        case let data as Data: return .data(Array(data))
        case let elements as [Any]: return .array(try array(elements, depth: depth))
        case let dictionary as [AnyHashable: Any]: return .dictionary(try self.dictionary(dictionary, depth: depth))
        default: throw unsupported(value)
        }
    }

    func dictionary(_ dictionary: [AnyHashable: Any], depth: Int) throws(PropertyListError) -> UserInfo {
        var result = UserInfo(minimumCapacity: dictionary.count)
        for (key, value) in dictionary { try add(value, key.base, to: &result, depth: depth) }
        return result
    }

    func dictionary(_ dictionary: NSDictionary, depth: Int) throws(PropertyListError) -> UserInfo {
        var result = UserInfo(minimumCapacity: dictionary.count)
        for (key, value) in dictionary.storedEntries { try add(value, key, to: &result, depth: depth) }
        return result
    }

    private func object(_ object: AnyObject, depth: Int) throws(PropertyListError) -> PropertyListValue {
        switch object {
        case let text as NSString: return .string(text as String)
        case let number as NSNumber: return PropertyListValue(number)
        case let date as NSDate: return .date(PropertyListDate(date as Date))
        case let data as NSData: return .data(Array(data as Data))
        case let array as NSArray: return .array(try self.array(array.storedElements, depth: depth))
        case let dictionary as NSDictionary: return .dictionary(try self.dictionary(dictionary, depth: depth))
        default: throw unsupported(object)
        }
    }

    private func array(_ elements: [Any], depth: Int) throws(PropertyListError) -> [PropertyListValue] {
        var result: [PropertyListValue] = []
        result.reserveCapacity(elements.count)
        for (index, element) in elements.enumerated() {
            do throws(PropertyListError) {
                result.append(try value(element, depth: depth + 1))
            } catch {
                throw error.at(index)
            }
        }
        return result
    }

    private func add(_ value: Any, _ key: Any, to result: inout UserInfo, depth: Int) throws(PropertyListError) {
        guard let text = text(ofKey: key) else {
            throw error("a key of type \(type(of: key))", "Give it a String as key.")
        }
        do throws(PropertyListError) {
            guard result.updateValue(try self.value(value, depth: depth + 1), forKey: text) == nil else {
                throw error("a second key that is equal as String", "Give each value a key of its own.")
            }
        } catch {
            throw error.under(text)
        }
    }

    private func text(ofKey key: Any) -> String? {
        switch key {
        case let text as Substring: String(text)
        // A String too.
        case let text as NSString: text as String
        default: nil
        }
    }

    private func integer(_ number: any BinaryInteger) throws(PropertyListError) -> PropertyListValue {
        if let number = Int64(exactly: number) { return .integer(number) }
        if let number = UInt64(exactly: number) { return .unsigned(number) }
        throw error("an integer beyond Int64.min or UInt64.max", "Send it as a String.")
    }

    private func unsupported(_ value: Any) -> PropertyListError {
        error("of type \(type(of: value))", "Leave it out, or send it as one of these.")
    }

    private func error(_ found: String, _ remedy: String) -> PropertyListError {
        PropertyListError(root, found: found, remedy: remedy)
    }
}

extension PropertyListValue {
    fileprivate init(_ number: NSNumber) {
        switch number.objCType.pointee {
        case _ where number.isBoolean: self = .bool(number.boolValue)
        case CChar(ascii: "d"), CChar(ascii: "f"): self = .double(number.doubleValue)
        case CChar(ascii: "Q"): self = .unsigned(number.uint64Value)
        default: self = .integer(number.int64Value)
        }
    }
}

extension CChar {
    fileprivate init(ascii: Unicode.Scalar) { self = CChar(UInt8(ascii: ascii)) }
}

/// An optional whose type is known at run time only.
private protocol AnyOptional {
    var wrapped: Any? { get }
}

extension Optional: AnyOptional {
    fileprivate var wrapped: Any? { self }
}
