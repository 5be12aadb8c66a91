import Foundation

/// What adding an observer returns. An object of Foundation's without being an `NSObject`, because that is not `Sendable`.
final class ObserverToken: NSObjectProtocol, Hashable, Sendable {
    func isEqual(_ object: Any?) -> Bool { object as AnyObject === self }
    var hash: Int { ObjectIdentifier(self).hashValue }
    func `self`() -> Self { self }
    func isProxy() -> Bool { false }
    var description: String { "an observer of DistributedNotificationCenter" }
    var debugDescription: String { description }

    static func == (left: ObserverToken, right: ObserverToken) -> Bool { left === right }
    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
