public import Foundation

extension DistributedNotificationCenter {
    /// A notification with a type of its own: the payload is the type's `Codable` form. Conform to ``AsyncMessage`` or
    /// ``MainActorMessage``, which say where observers are called.
    ///
    /// The shape is that of `NotificationCenter.AsyncMessage`, between processes: the subject is a text, and every process that
    /// declares a type of the same ``name`` and form takes part, as does every observer of the plain notification.
    ///
    /// Two of Foundation's types must not be among the properties: `IndexSet` and `CharacterSet` end the process, on Linux, when
    /// they decode what nobody encoded, and anybody may post anything under the name (CF-U8). Send their elements.
    public protocol Message: Codable, Sendable {
        /// The notification's name.
        ///
        /// By default the type's own with its module's, such as `Shop.OrderPlaced`. Processes agree on that only where they get
        /// the type from a module that they share, and only until it is renamed; a program's own types, private ones above all,
        /// had better give a name.
        static var name: Notification.Name { get }
    }

    /// A message whose observers are asynchronous, and called on no actor.
    public protocol AsyncMessage: Message {}

    /// A message whose observers are called on the main actor. It is posted from anywhere.
    public protocol MainActorMessage: Message {}
}

extension DistributedNotificationCenter.Message {
    /// The type's name with its module's.
    public static var name: Notification.Name { Notification.Name(String(reflecting: Self.self)) }
}
