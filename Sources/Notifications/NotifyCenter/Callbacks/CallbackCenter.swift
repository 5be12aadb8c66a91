import DBusTransport
import Synchronization

/// A center as `CFNotificationCenter` has it: observers are pointers, removed by criteria, and called on the main thread but for
/// local posts. What the C symbols and Apple's Swift spelling of them have in common; they convert the arguments, and share the
/// process's three centers, so that an observer of one hears a post of the other (CF-T2).
package final class CallbackCenter: Sendable {
    /// The process's center within itself.
    package static let local = CallbackCenter.makeLocal()
    /// The process's Darwin center.
    package static let darwin = CallbackCenter.darwin(.default)
    /// The process's distributed center.
    package static let distributed = CallbackCenter.distributed(.default)

    /// What a notification is about.
    package enum Object: Sendable, Hashable {
        /// Local: compared by address (CF-M5).
        case address(UInt)
        /// Distributed: compared as text (CF-M4).
        case text(String)

        package static func == (left: Self, right: Self) -> Bool {
            switch (left, right) {
            case (.address(let left), .address(let right)): left == right
            case (.text(let left), .text(let right)): NotificationObject(text: left) == NotificationObject(text: right)
            default: false
            }
        }

        package func hash(into hasher: inout Hasher) {
            switch self {
            case .address(let address): hasher.combine(address)
            case .text(let text): hasher.combine(NotificationObject(text: text))
            }
        }
    }

    /// What a notification says.
    package enum Content: Sendable {
        case none
        case local(LocalContent)
        case distributed(UserInfo)
    }

    /// What a local post hands on: the very objects, uncopied (CF-U3), which the poster keeps alive until its post returns.
    package struct LocalContent: Sendable {
        /// The address of the name, a CFString.
        package let name: UInt
        /// The address of the userInfo, a CFDictionary; `nil` for none.
        package let userInfo: UInt?

        package init(name: UInt, userInfo: UInt?) {
            self.name = name
            self.userInfo = userInfo
        }
    }

    /// A notification as it reaches an observer.
    package struct Notification: Sendable {
        /// The posted name, also for observers of any name (CF-D6).
        package let name: NotificationName
        package let object: Object?
        package let content: Content
    }

    package typealias Handler = @Sendable (Notification) -> Void

    private enum Backing {
        case local(SynchronousCenter<UInt, Notification>)
        case darwin(DarwinNotifyCenter)
        case distributed(DistributedNotifyCenter)
    }

    private let backing: Backing
    /// Registrations without an observer are under `nil`, which nobody can remove (CF-A1).
    private let observers = Locked(ObserverTable<UInt?, Object, CallbackRegistration>())

    private init(_ backing: Backing) { self.backing = backing }

    /// A registration holds itself, by its handler, until it is removed.
    deinit { for registration in observers.withLock({ $0.all }) { registration.remove() } }

    /// A center within this process, of its own.
    package static func makeLocal() -> CallbackCenter { CallbackCenter(.local(SynchronousCenter())) }

    /// The Darwin center's names.
    package static func darwin(_ center: DarwinNotifyCenter) -> CallbackCenter { CallbackCenter(.darwin(center)) }

    /// The distributed center.
    package static func distributed(_ center: DistributedNotifyCenter) -> CallbackCenter {
        CallbackCenter(.distributed(center))
    }

    // MARK: Observers

    /// Registers; in force on return (CF-A11). The handler runs on the main queue, that of a local center on the poster's thread.
    ///
    /// - Parameters:
    ///   - observer: what it is removed by, never followed (CF-A2); `nil` for one that stays for good (CF-A1).
    ///   - name: `nil` for any; the Darwin center has no such registrations, and makes none (CF-A8).
    ///   - object: `nil` for any; without effect on the Darwin center (CF-M6).
    ///   - suspensionBehavior: without effect on all but the distributed center (CF-S13).
    /// - Throws: ``DBusError`` where the bus cannot be reached or refuses; then nothing is registered.
    package func add(
        _ observer: UInt?,
        name: NotificationName?,
        object: Object?,
        suspensionBehavior: SuspensionBehavior,
        handler: @escaping Handler
    ) throws(DBusError) {
        let registration = CallbackRegistration()
        let object = criterion(object)
        observers.withLock { $0.add(registration, of: observer, name: name, object: object) }
        do throws(DBusError) {
            let observation = try observe(name, object, suspensionBehavior) { notification in
                if registration.isLive { handler(notification) }
            }
            registration.begin(observation)
        } catch {
            observers.withLock { $0.remove(registration, of: observer) }
            throw error
        }
    }

    /// Removes the observer's registrations that meet the criteria, of which `nil` is none (CF-R2, CF-R3). On return nothing
    /// more is called, but for a call that is under way on another thread (CF-R7).
    package func remove(_ observer: UInt, name: NotificationName?, object: Object?) {
        let object = criterion(object)
        let removed = observers.withLock { $0.remove(observer, name: name, object: object) }
        for registration in removed { registration.remove() }
    }

    /// Removes all of the observer's registrations, and nobody else's (CF-R4).
    package func removeEvery(_ observer: UInt) { remove(observer, name: nil, object: nil) }

    /// The Darwin center knows no objects (CF-A8, CF-R6).
    private func criterion(_ object: Object?) -> Object? {
        if case .darwin = backing { nil } else { object }
    }

    private func observe(
        _ name: NotificationName?,
        _ object: Object?,
        _ suspensionBehavior: SuspensionBehavior,
        _ handler: @escaping Handler
    ) throws(DBusError) -> NotificationObservation? {
        switch backing {
        case .local(let center):
            return center.observe(name, object: object?.address, handler: handler)
        case .darwin(let center):
            guard let name else { return nil }
            return try center.observe(name, delivery: .main) { notification in
                handler(Notification(name: notification.name, object: nil, content: .none))
            }
        case .distributed(let center):
            return try center.observe(
                name,
                object: object?.text,
                delivery: .main,
                suspensionBehavior: suspensionBehavior
            ) { notification in
                handler(
                    Notification(
                        name: notification.name,
                        object: notification.object.map(Object.text),
                        content: notification.userInfo.map(Content.distributed) ?? .none
                    )
                )
            }
        }
    }

    // MARK: Posting

    /// Posts. A local center calls its observers before this returns (CF-D1); the others never within the call (CF-P10).
    ///
    /// - Parameters:
    ///   - object: without effect on the Darwin center, as are `content` and `options` (CF-W1).
    ///   - options: without effect on a local center (CF-P8).
    /// - Throws: ``DBusError`` for what cannot travel, and where the bus cannot be reached; then nobody gets it.
    package func post(
        _ name: NotificationName,
        object: Object?,
        content: Content,
        options: PostingOptions
    ) throws(DBusError) {
        switch backing {
        case .local(let center):
            center.post(Notification(name: name, object: object, content: content), name: name, object: object?.address)
        case .darwin(let center): try center.post(name)
        case .distributed(let center):
            let userInfo: UserInfo? = if case .distributed(let userInfo) = content { userInfo } else { nil }
            try center.post(name, object: object?.text, userInfo: userInfo, options: options)
        }
    }
}

extension CallbackCenter.Object {
    /// The address, of an object that is one.
    package var address: UInt? { if case .address(let address) = self { address } else { nil } }

    /// The text, of an object that is one.
    package var text: String? { if case .text(let text) = self { text } else { nil } }
}

extension CallbackCenter {
    /// Which center it is, for those who convert what Apple's functions take.
    package enum Kind: Sendable {
        case local
        case darwin
        case distributed
    }

    /// Which center it is.
    package var kind: Kind {
        switch backing {
        case .local: .local
        case .darwin: .darwin
        case .distributed: .distributed
        }
    }
}
