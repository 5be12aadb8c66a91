import CoreFoundation
import NotifyCenter

/// Reads a client's CFDictionary as property-list values (CF-U1). Recursive, down to a bound.
struct UserInfoReader {
    /// Containers in each other, as many as a message of the bus carries. A dictionary that holds itself ends here too.
    private static let maximumDepth = 20

    /// Where it is, for errors.
    private var path: [String] = ["userInfo"]

    /// - Parameter pointer: must lead to a CoreFoundation object, and so must what that holds.
    /// - Throws: ``ArgumentError`` with the place of the first value that is no property-list value (CF-U2).
    static func read(_ pointer: UnsafeRawPointer) throws(ArgumentError) -> UserInfo {
        var reader = UserInfoReader()
        guard typeIdentifier(at: pointer) == CFDictionaryGetTypeID() else {
            throw reader.error(found: "a \(typeName(at: pointer))", remedy: "it must be a CFDictionary")
        }
        return try reader.dictionary(object(at: pointer, as: CFDictionary.self))
    }

    private func error(found: String, remedy: String) -> ArgumentError {
        ArgumentError(argument: path.joined(), found: found, remedy: "\(remedy); nothing was posted")
    }

    private mutating func value(at pointer: UnsafeRawPointer) throws(ArgumentError) -> PropertyListValue {
        switch typeIdentifier(at: pointer) {
        case CFStringGetTypeID(): return .string(try string(object(at: pointer, as: CFString.self)))
        case CFBooleanGetTypeID(): return .bool(CFBooleanGetValue(object(at: pointer, as: CFBoolean.self)))
        case CFNumberGetTypeID(): return try number(object(at: pointer, as: CFNumber.self))
        case CFDateGetTypeID():
            let seconds = CFDateGetAbsoluteTime(object(at: pointer, as: CFDate.self))
            return .date(PropertyListDate(secondsSinceReferenceDate: seconds))
        case CFDataGetTypeID(): return .data(bytes(object(at: pointer, as: CFData.self)))
        case CFArrayGetTypeID(): return .array(try array(object(at: pointer, as: CFArray.self)))
        case CFDictionaryGetTypeID(): return .dictionary(try dictionary(object(at: pointer, as: CFDictionary.self)))
        default:
            throw error(
                found: "a \(typeName(at: pointer))",
                remedy: "use CFString, CFNumber, CFBoolean, CFDate, CFData, CFArray or CFDictionary"
            )
        }
    }

    private func string(_ string: CFString) throws(ArgumentError) -> String {
        do throws(TextError) {
            return try text(string)
        } catch {
            throw self.error(found: error.found, remedy: error.remedy)
        }
    }

    private func number(_ number: CFNumber) throws(ArgumentError) -> PropertyListValue {
        if CFNumberIsFloatType(number) {
            var value = 0.0
            CFNumberGetValue(number, .doubleType, &value)
            return .double(value)
        }
        // The wide form first: asked for 64 bits, CFNumberGetValue calls a wider number's low half exact.
        let value = WideInteger(number)
        if let integer = Int64(exactly: value.value) { return .integer(integer) }
        if let unsigned = UInt64(exactly: value.value) { return .unsigned(unsigned) }
        throw error(found: "the number \(value.value)", remedy: "use one from Int64.min to UInt64.max, or a CFString")
    }

    private func bytes(_ data: CFData) -> [UInt8] {
        let length = CFDataGetLength(data)
        return [UInt8](unsafeUninitializedCapacity: length) { buffer, count in
            CFDataGetBytes(data, CFRange(location: 0, length: length), buffer.baseAddress)
            count = length
        }
    }

    // MARK: Containers

    private mutating func array(_ array: CFArray) throws(ArgumentError) -> [PropertyListValue] {
        try checkDepth()
        return try withElements(of: array) { elements throws(ArgumentError) in
            var values: [PropertyListValue] = []
            for (index, pointer) in elements.enumerated() { values.append(try element(pointer, at: "[\(index)]")) }
            return values
        }
    }

    private mutating func dictionary(_ dictionary: CFDictionary) throws(ArgumentError) -> UserInfo {
        try checkDepth()
        return try withEntries(of: dictionary) { entries throws(ArgumentError) in
            var result: UserInfo = [:]
            for (key, value) in entries {
                let key = try self.key(key)
                guard result.updateValue(try element(value, at: "[\"\(key)\"]"), forKey: key) == nil else {
                    throw error(
                        found: "a dictionary with two keys “\(key)” that differ only in how Unicode composes them",
                        remedy: "rename one"
                    )
                }
            }
            return result
        }
    }

    private func key(_ pointer: UnsafeRawPointer?) throws(ArgumentError) -> String {
        guard let pointer else {
            throw error(found: "a dictionary with a NULL key", remedy: "keys must be CFStrings")
        }
        guard typeIdentifier(at: pointer) == CFStringGetTypeID() else {
            throw error(
                found: "a dictionary with a \(typeName(at: pointer)) for a key",
                remedy: "keys must be CFStrings"
            )
        }
        do throws(TextError) {
            return try text(object(at: pointer, as: CFString.self))
        } catch {
            throw self.error(found: "a dictionary with \(error.found), for a key", remedy: error.remedy)
        }
    }

    private mutating func element(
        _ pointer: UnsafeRawPointer?,
        at step: String
    ) throws(ArgumentError) -> PropertyListValue {
        path.append(step)
        defer { path.removeLast() }
        guard let pointer else { throw error(found: "NULL", remedy: "leave it out") }
        return try value(at: pointer)
    }

    private func checkDepth() throws(ArgumentError) {
        guard path.count <= Self.maximumDepth else {
            throw error(
                found: "more than \(Self.maximumDepth) containers deep",
                remedy: "flatten it, if it does not hold itself"
            )
        }
    }
}
