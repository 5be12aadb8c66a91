public import Foundation
public import NotifyCenter

extension PropertyListDate {
    /// The moment that a `Date` tells, to the last bit.
    public init(_ date: Date) { self.init(secondsSinceReferenceDate: date.timeIntervalSinceReferenceDate) }
}

extension Date {
    /// The moment of a property list, to the last bit.
    public init(_ date: PropertyListDate) { self.init(timeIntervalSinceReferenceDate: date.secondsSinceReferenceDate) }
}
