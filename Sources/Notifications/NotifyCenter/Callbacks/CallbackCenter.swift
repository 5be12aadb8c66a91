import DBusTransport
import Synchronization

/// A center as `CFNotificationCenter` has it: observers are pointers, removed by name and object. Local posts call them on the poster's
/// thread, all others on the main queue.
///
/// The C symbols and Apple's Swift spelling of them both stand on this: they convert the arguments, and share the process's three
/// centers, so that an observer of one hears a post of the other (CF-T2).
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
        case text(NotificationObject)

        /// A text.
        package static func text(_ text: String) -> Object { .text(NotificationObject(text: text)) }
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
    private let observers = Locked(ObserverTable<UInt?, Object, NotificationObservation>())

    private init(_ backing: Backing) { self.backing = backing }

    /// A center within this process, of its own.
    package static func makeLocal() -> CallbackCenter { CallbackCenter(.local(SynchronousCenter())) }

    /// The Darwin center's names.
    package static func darwin(_ center: DarwinNotifyCenter) -> CallbackCenter { CallbackCenter(.darwin(center)) }

    /// The distributed center.
    package static func distributed(_ center: DistributedNotifyCenter) -> CallbackCenter {
        CallbackCenter(.distributed(center))
    }

    // MARK: Observers

    /// Registers; in force on return (CF-A11). The main queue calls the handler; a local center calls it on the poster's
    /// thread.
    ///
    /// - Parameters:
    ///   - observer: what removals name. The pointer is never followed (CF-A2); a registration for `nil` stays for good (CF-A1).
    ///   - name: `nil` means any; the Darwin center knows no such registrations, and makes none (CF-A8).
    ///   - object: `nil` means any; without effect on the Darwin center (CF-M6).
    ///   - suspensionBehavior: has an effect on the distributed center alone (CF-S13).
    /// - Throws: ``DBusError`` where the bus cannot be reached or refuses. The observer is kept nevertheless, and hears once the bus is
    ///   there and grants its rule: none of Apple's functions could tell its caller to try again.
    package func add(
        _ observer: UInt?,
        name: NotificationName?,
        object: Object?,
        suspensionBehavior: SuspensionBehavior,
        handler: @escaping Handler
    ) throws(DBusError) {
        let object = criterion(object)
        // In the table before the first notification can arrive, whose handler may remove it.
        func add(_ observation: NotificationObservation) {
            observers.withLock { $0.add(observation, of: observer, name: name, object: object) }
        }
        switch backing {
        case .local(let center):
            center.observe(name, object: object?.address, known: add, handler: handler)
        case .darwin(let center):
            guard let name else { return }
            try center.keepObserving(name, known: add) { notification in
                handler(Notification(name: notification.name, object: nil, content: .none))
            }
        case .distributed(let center):
            try center.keepObserving(
                name,
                object: object?.text,
                delivery: .main,
                suspensionBehavior: suspensionBehavior,
                known: add
            ) { notification in
                handler(
                    Notification(
                        name: notification.name,
                        object: notification.object.map { .text($0) },
                        content: notification.userInfo.map(Content.distributed) ?? .none
                    )
                )
            }
        }
    }

    /// Removes the observer's registrations for this name and object; `nil` means whatever name or object they are for (CF-R2, CF-R3). On
    /// return no call begins any more, and one under way on another thread goes on (CF-R7).
    package func remove(_ observer: UInt, name: NotificationName?, object: Object?) {
        // A forked child has no observers, and another thread of its parent's may have held the lock.
        if case .local = backing {} else if ForkedChild.isCurrent { return }
        let object = criterion(object)
        let removed = observers.withLock { $0.remove(observer, name: name, object: object) }
        for observation in removed { observation.cancel() }
    }

    /// Removes all of the observer's registrations, and nobody else's (CF-R4).
    package func removeEvery(_ observer: UInt) { remove(observer, name: nil, object: nil) }

    /// The Darwin center knows no objects (CF-A8, CF-R6).
    private func criterion(_ object: Object?) -> Object? {
        if case .darwin = backing { nil } else { object }
    }

    // MARK: Posting

    /// Posts. A local center calls its observers before this returns (CF-D1); the others never within the call (CF-P10).
    ///
    /// - Parameters:
    ///   - object: without effect on the Darwin center, as are `content` and `options` (CF-W1).
    ///   - options: without effect on a local center (CF-P8).
    /// - Throws: ``DBusError`` for what cannot travel, and where the bus cannot be reached; then nobody gets it. A bus that stopped and
    ///   then goes on may still deliver a post that threw ``DBusError/Code/timedOut``.
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
    package var text: String? { if case .text(let object) = self { object.text } else { nil } }
}

// MARK: - Table

/// Which registrations an observer has, for centers where a removal names the observer, and perhaps a name and an object. Pure.
///
/// A removal costs time for what it removes, however many registrations the observer has.
package struct ObserverTable<Observer: Hashable, Object: Hashable, Registration> {
    private struct Key: Hashable {
        let name: NotificationName?
        let object: Object?
    }

    private struct Entry {
        let number: UInt64
        let registration: Registration
    }

    /// What one observer has.
    private struct Entries {
        var byKey: [Key: [Entry]] = [:]
        /// The keys of each name, and those of each object.
        private var keysOfName: [NotificationName: Set<Key>] = [:]
        private var keysOfObject: [Object: Set<Key>] = [:]

        mutating func add(_ entry: Entry, _ key: Key) {
            byKey[key, default: []].append(entry)
            if let name = key.name { keysOfName[name, default: []].insert(key) }
            if let object = key.object { keysOfObject[object, default: []].insert(key) }
        }

        func keys(name: NotificationName?, object: Object?) -> [Key] {
            switch (name, object) {
            case (let name?, let object?): [Key(name: name, object: object)]
            case (let name?, nil): Array(keysOfName[name] ?? [])
            case (nil, let object?): Array(keysOfObject[object] ?? [])
            case (nil, nil): Array(byKey.keys)
            }
        }

        mutating func remove(_ key: Key) -> [Entry] {
            if let name = key.name {
                keysOfName[name]?.remove(key)
                if keysOfName[name]?.isEmpty == true { keysOfName[name] = nil }
            }
            if let object = key.object {
                keysOfObject[object]?.remove(key)
                if keysOfObject[object]?.isEmpty == true { keysOfObject[object] = nil }
            }
            return byKey.removeValue(forKey: key) ?? []
        }
    }

    private var byObserver: [Observer: Entries] = [:]
    private var lastNumber: UInt64 = 0

    package init() {}

    /// Equal registrations are kept side by side (CF-A5).
    package mutating func add(
        _ registration: Registration,
        of observer: Observer,
        name: NotificationName?,
        object: Object?
    ) {
        lastNumber += 1
        let entry = Entry(number: lastNumber, registration: registration)
        byObserver[observer, default: Entries()].add(entry, Key(name: name, object: object))
    }

    /// Takes out the observer's registrations for this name and object; `nil` means whatever they are for (CF-R2). A given name leaves
    /// a registration for any name alone, and a given object one for any object (CF-R3).
    ///
    /// - Returns: the registrations, in the order in which they were added.
    package mutating func remove(_ observer: Observer, name: NotificationName?, object: Object?) -> [Registration] {
        guard let index = byObserver.index(forKey: observer) else { return [] }
        var removed: [Entry] = []
        for key in byObserver.values[index].keys(name: name, object: object) {
            removed += byObserver.values[index].remove(key)
        }
        if byObserver.values[index].byKey.isEmpty { byObserver.remove(at: index) }
        return removed.sorted { $0.number < $1.number }.map(\.registration)
    }
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
