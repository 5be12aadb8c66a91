public import FoundationEssentials

public enum SQLiteValue: Sendable, Hashable {
    case null
    case integer(Int64)
    case real(Double)
    case text(String)
    case blob([UInt8])
}

/// A value that can be bound to a parameter. A `nil` optional is NULL.
public protocol SQLiteBindable {
    var sqliteValue: SQLiteValue { get }
}

/// A value that can also be read from a column.
public protocol SQLiteReadable: SQLiteBindable {
    /// `nil` if the value has another type or does not fit. Files may come from any program.
    init?(_ value: SQLiteValue)
}

extension Optional: SQLiteBindable where Wrapped: SQLiteBindable {
    public var sqliteValue: SQLiteValue { self?.sqliteValue ?? .null }
}

extension SQLiteReadable where Self: FixedWidthInteger {
    /// A number outside SQLite's range is clamped.
    public var sqliteValue: SQLiteValue { .integer(Int64(clamping: self)) }

    public init?(_ value: SQLiteValue) {
        guard case .integer(let number) = value else { return nil }
        self.init(exactly: number)
    }
}

extension Int: SQLiteReadable {}
extension Int64: SQLiteReadable {}
extension UInt32: SQLiteReadable {}
extension UInt64: SQLiteReadable {}

extension Bool: SQLiteReadable {
    public var sqliteValue: SQLiteValue { .integer(self ? 1 : 0) }

    public init?(_ value: SQLiteValue) {
        switch value {
        case .integer(0): self = false
        case .integer(1): self = true
        default: return nil
        }
    }
}

extension Double: SQLiteReadable {
    public var sqliteValue: SQLiteValue { .real(self) }

    public init?(_ value: SQLiteValue) {
        switch value {
        case .real(let number): self = number
        case .integer(let number): self.init(number)
        default: return nil
        }
    }
}

/// In seconds since 1970, UTC.
extension Date: SQLiteReadable {
    public var sqliteValue: SQLiteValue { .real(timeIntervalSince1970) }

    /// `nil` also for a date far beyond any calendar, on which programs that show dates may trap.
    public init?(_ value: SQLiteValue) {
        guard let seconds = Double(value), abs(seconds) < 1e11 else { return nil }
        self.init(timeIntervalSince1970: seconds)
    }
}

extension String: SQLiteReadable {
    public var sqliteValue: SQLiteValue { .text(self) }

    public init?(_ value: SQLiteValue) {
        guard case .text(let text) = value else { return nil }
        self = text
    }
}

extension [UInt8]: SQLiteBindable, SQLiteReadable {
    public var sqliteValue: SQLiteValue { .blob(self) }

    public init?(_ value: SQLiteValue) {
        guard case .blob(let bytes) = value else { return nil }
        self = bytes
    }
}
