package enum SQLiteValue: Sendable, Hashable {
    case null
    case integer(Int64)
    case real(Double)
    case text(String)
    case blob([UInt8])
}

/// A value that can be bound to a parameter. A `nil` optional is NULL.
package protocol SQLiteBindable {
    var sqliteValue: SQLiteValue { get }
}

/// A value that can also be read from a column.
package protocol SQLiteReadable: SQLiteBindable {
    /// `nil` if the value has another type or does not fit. Files may come from any program.
    init?(_ value: SQLiteValue)
}

extension Optional: SQLiteBindable where Wrapped: SQLiteBindable {
    package var sqliteValue: SQLiteValue { self?.sqliteValue ?? .null }
}

extension SQLiteReadable where Self: FixedWidthInteger {
    /// A number outside SQLite's range is clamped.
    package var sqliteValue: SQLiteValue { .integer(Int64(clamping: self)) }

    package init?(_ value: SQLiteValue) {
        guard case .integer(let number) = value else { return nil }
        self.init(exactly: number)
    }
}

extension Int: SQLiteReadable {}
extension Int64: SQLiteReadable {}
extension UInt32: SQLiteReadable {}
extension UInt64: SQLiteReadable {}

extension Bool: SQLiteReadable {
    package var sqliteValue: SQLiteValue { .integer(self ? 1 : 0) }

    package init?(_ value: SQLiteValue) {
        switch value {
        case .integer(0): self = false
        case .integer(1): self = true
        default: return nil
        }
    }
}

extension Double: SQLiteReadable {
    package var sqliteValue: SQLiteValue { .real(self) }

    package init?(_ value: SQLiteValue) {
        switch value {
        case .real(let number): self = number
        case .integer(let number): self.init(number)
        default: return nil
        }
    }
}

extension String: SQLiteReadable {
    package var sqliteValue: SQLiteValue { .text(self) }

    package init?(_ value: SQLiteValue) {
        guard case .text(let text) = value else { return nil }
        self = text
    }
}

extension [UInt8]: SQLiteBindable, SQLiteReadable {
    package var sqliteValue: SQLiteValue { .blob(self) }

    package init?(_ value: SQLiteValue) {
        guard case .blob(let bytes) = value else { return nil }
        self = bytes
    }
}
