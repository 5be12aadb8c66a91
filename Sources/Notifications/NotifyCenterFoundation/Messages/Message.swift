import Basics
import DBus
public import Foundation
import NotifyCenter
import Synchronization

extension DistributedNotificationCenter {
    /// A notification with a Swift type: the userInfo is the type's `Codable` form. Conform to ``AsyncMessage`` or
    /// ``MainActorMessage``, which say where the center calls observers.
    ///
    /// It is modelled on `NotificationCenter.AsyncMessage`, but crosses processes. The subject is a text. Every process
    /// that declares a type of the same ``name`` and form takes part, and so does every observer of the plain
    /// notification.
    ///
    /// Do not use `IndexSet` and `CharacterSet` as properties. On Linux these types end the process when they decode
    /// bytes that no `IndexSet` or `CharacterSet` encoded. Any process may post such bytes under the name (CF-U8). Send
    /// the elements of the set instead.
    public protocol Message: Codable, Sendable {
        /// The notification's name.
        ///
        /// By default the type's name with its module, such as `Shop.OrderPlaced`. Two processes agree on it if both
        /// have the type from the same module. Give an explicit name to types of a program, and above all to private
        /// types.
        static var name: Notification.Name { get }
    }

    /// A message whose observers are asynchronous functions on no actor.
    public protocol AsyncMessage: Message {}

    /// A message whose observers run on the main actor. Any thread may post it.
    public protocol MainActorMessage: Message {}
}

extension DistributedNotificationCenter.Message {
    /// The type's name with its module.
    public static var name: Notification.Name { Notification.Name(String(reflecting: Self.self)) }
}

// MARK: Coding

/// Encodes messages as property lists. The stored properties of a message are the entries of its userInfo. Observers of
/// the plain notification, and other tools, can read and make them.
enum MessageCoding {
    /// Binary, because the XML form drops fractions of a second.
    private static let format = PropertyListSerialization.PropertyListFormat.binary

    /// Foundation's coders decode this text as `nil`, also as a key of a dictionary.
    private static let textOfNil = "$null"

    static func encode<M: DistributedNotificationCenter.Message>(_ message: M) throws -> UserInfo {
        let encoder = PropertyListEncoder()
        encoder.outputFormat = format
        let data = try encoder.encode(message)
        let value = try PropertyListSerialization.propertyList(from: data, options: [], format: nil)
        guard let dictionary = value as? [String: Any] else {
            let reason = "\(type(of: message)) does not encode as named values; make it a struct with properties"
            throw refusal(of: message, reason)
        }
        let userInfo = try UserInfo(propertyList: dictionary)
        guard holdsTextOfNil(.dictionary(userInfo)) else { return userInfo }
        // If the type has no `nil`, a receiver could not decode it.
        do {
            _ = try decode(M.self, from: userInfo)
        } catch {
            throw refusal(of: message, "the text $null stands for nil in a property list; send another", error)
        }
        return userInfo
    }

    private static func refusal(of message: Any, _ reason: String, _ cause: (any Error)? = nil) -> EncodingError {
        .invalidValue(message, .init(codingPath: [], debugDescription: reason, underlyingError: cause))
    }

    private static func holdsTextOfNil(_ value: PropertyListValue) -> Bool {
        switch value {
        case .array(let elements): elements.contains(where: holdsTextOfNil)
        case .dictionary(let dictionary): dictionary.contains { $0.key == textOfNil || holdsTextOfNil($0.value) }
        default: value == .string(textOfNil)
        }
    }

    /// - Parameter userInfo: from another process, so it may contain anything.
    static func decode<M: DistributedNotificationCenter.Message>(_: M.Type, from userInfo: UserInfo?) throws -> M {
        let value = userInfo?.foundationValue ?? [:]
        let data = try PropertyListSerialization.data(fromPropertyList: value, format: format, options: 0)
        return try PropertyListDecoder().decode(M.self, from: data)
    }
}

extension DistributedNotificationCenter {
    /// Returns the message in a notification. If it does not decode as this type, returns `nil` and counts it.
    static func message<M: Message>(_: M.Type, _ notification: DistributedNotification, undecodable: Counter) -> M? {
        do {
            return try MessageCoding.decode(M.self, from: notification.userInfo)
        } catch {
            undecodable.increment()
            return nil
        }
    }
}

final class Counter: Sendable {
    private let count = Locked<UInt64>(0)

    var value: UInt64 { count.withLock { $0 } }

    func increment() { count.withLock { $0 += 1 } }
}
