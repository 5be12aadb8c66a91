import Basics
import DBus
import Synchronization

/// A center in the style of `CFNotificationCenter`: observers are pointers, removed by name and object. Local posts
/// call them on the poster's thread, all others on the main queue.
///
/// The C symbols and Apple's Swift spelling are both built on this type. They convert the arguments and share the
/// process's three centers, so that an observer registered with one receives a post to the other (CF-T2).
package final class CallbackCenter: Sendable {
    /// The process's shared local center.
    package static let local = CallbackCenter.makeLocal()
    package static let darwin = CallbackCenter.darwin(.default)
    package static let distributed = CallbackCenter.distributed(.default)

    package enum Object: Sendable, Hashable {
        /// For the local center: compared by address (CF-M5).
        case address(UInt)
        /// For the distributed center: compared as text (CF-M4).
        case text(NotificationObject)

        package static func text(_ text: String) -> Object { .text(NotificationObject(text: text)) }

        package var address: UInt? { if case .address(let address) = self { address } else { nil } }
        package var text: String? { if case .text(let object) = self { object.text } else { nil } }
    }

    package enum Content: Sendable {
        case none
        case local(LocalContent)
        case distributed(UserInfo)
    }

    /// The content of a local post: the posted objects themselves, uncopied (CF-U3). The poster keeps them alive until
    /// its post returns.
    package struct LocalContent: Sendable {
        /// The address of the name, a CFString.
        package let name: UInt
        /// The address of the userInfo, a CFDictionary; `nil` for none.
        package let userInfo: UInt?
    }

    /// A notification in the form that an observer gets.
    package struct Notification: Sendable {
        /// The posted name, also for observers of any name (CF-D6).
        package let name: NotificationName
        package let object: Object?
        package let content: Content
    }

    package typealias Handler = @Sendable (Notification) -> Void

    /// The kind of center, for callers that convert the arguments of Apple's functions.
    package enum Kind: Sendable {
        case local
        case darwin
        case distributed
    }

    package var kind: Kind {
        switch backing {
        case .local: .local
        case .darwin: .darwin
        case .distributed: .distributed
        }
    }

    private enum Backing {
        case local(SynchronousCenter<UInt, Notification>)
        case darwin(DarwinNotifyCenter)
        case distributed(DistributedNotifyCenter)
    }

    private let backing: Backing
    /// Registrations without an observer are under `nil`, and cannot be removed (CF-A1).
    private let observers = Locked(ObserverTable<UInt?, Object, NotificationObservation>())

    private init(_ backing: Backing) { self.backing = backing }

    /// Makes a local center that is separate from ``local``.
    package static func makeLocal() -> CallbackCenter { CallbackCenter(.local(SynchronousCenter())) }
    package static func darwin(_ center: DarwinNotifyCenter) -> CallbackCenter { .init(.darwin(center)) }
    package static func distributed(_ center: DistributedNotifyCenter) -> CallbackCenter { .init(.distributed(center)) }

    // MARK: Observers

    /// Registers a handler. The registration is in force on return (CF-A11). The main queue calls the handler; a local
    /// center calls it on the poster's thread.
    ///
    /// - Parameters:
    ///   - observer: the pointer that removals name. It is never dereferenced (CF-A2). A registration for `nil` is
    ///     permanent (CF-A1).
    ///   - name: `nil` means any. The Darwin center does not support it and registers nothing (CF-A8).
    ///   - object: `nil` means any; without effect on the Darwin center (CF-M6).
    ///   - suspensionBehavior: has an effect on the distributed center only (CF-S13).
    /// - Throws: ``DBusError`` if the bus cannot be reached or refuses the rule. The observer is kept anyway, and
    ///   receives posts once the bus is there and grants the rule: Apple's functions cannot tell their caller to retry.
    package func add(
        _ observer: UInt?,
        name: NotificationName?,
        object: Object?,
        suspensionBehavior: SuspensionBehavior,
        handler: @escaping Handler
    ) throws(DBusError) {
        let object = criterion(object)
        // Added before the first notification can arrive, because its handler may remove the registration.
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
                let object = notification.object.map { Object.text($0) }
                let content = notification.userInfo.map(Content.distributed) ?? .none
                handler(Notification(name: notification.name, object: object, content: content))
            }
        }
    }

    /// Removes the observer's registrations for this name and object; `nil` means any (CF-R2, CF-R3). After the return
    /// no further call begins. A call in progress on another thread continues (CF-R7).
    package func remove(_ observer: UInt, name: NotificationName?, object: Object?) {
        // A forked child has no observers, and another thread of the parent may have held the lock at the fork.
        if case .local = backing {} else if ForkedChild.isCurrent { return }
        let object = criterion(object)
        let removed = observers.withLock { $0.remove(observer, name: name, object: object) }
        for observation in removed { observation.cancel() }
    }

    /// Removes all of this observer's registrations, and no other observer's (CF-R4).
    package func removeEvery(_ observer: UInt) { remove(observer, name: nil, object: nil) }

    /// The Darwin center has no objects (CF-A8, CF-R6).
    private func criterion(_ object: Object?) -> Object? {
        if case .darwin = backing { nil } else { object }
    }

    // MARK: Posting

    /// Posts a notification. A local center calls its observers before this returns (CF-D1); the others never call them
    /// within the post (CF-P10).
    ///
    /// - Parameters:
    ///   - object: without effect on the Darwin center, as are `content` and `options` (CF-W1).
    ///   - options: without effect on a local center (CF-P8).
    /// - Throws: ``DBusError`` for content that cannot be sent, and if the bus cannot be reached; then no observer gets
    ///   the post. After ``DBusError/Code/timedOut``, a stopped bus that resumes may still deliver it.
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

// MARK: - Table

/// The registrations of each observer. A removal names the observer, and optionally a name and an object. Pure.
///
/// The cost of a removal depends on the number of registrations that it removes, not on how many the observer has.
package struct ObserverTable<Observer: Hashable, Object: Hashable, Registration> {
    private struct Key: Hashable {
        let name: NotificationName?
        let object: Object?
    }

    private struct Entry {
        let number: UInt64
        let registration: Registration
    }

    /// The registrations of one observer.
    private struct Entries {
        var byKey: [Key: [Entry]] = [:]
        /// The keys by name and by object, so that a removal need not search all.
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

    /// Adds a registration. Equal registrations coexist (CF-A5).
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

    /// Removes the observer's registrations for this name and object; `nil` means any (CF-R2). A given name does not
    /// match a registration for any name, and a given object does not match one for any object (CF-R3).
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

// Shared by the modules with Apple's functions, which take pointers and throw nothing.

extension UnthrownFailures {
    /// Runs `work` for a function that Apple declares without `throws`, and reports its error.
    package static func report(in function: String, _ work: () throws -> Void) {
        do { try work() } catch { report(error, in: function) }
    }

    /// Runs `work` in the same way, with an argument that the function needs. Reports a missing argument too.
    package static func report<Argument>(
        in function: String,
        attempted: String,
        _ name: String,
        _ argument: Argument?,
        _ work: (Argument) throws -> Void
    ) {
        report(in: function) {
            guard let argument else {
                throw DBusError(
                    .invalidArgument,
                    message: "there is no \(name), so nothing was done",
                    attempted: attempted,
                    remedy: "pass the \(name)"
                )
            }
            try work(argument)
        }
    }
}

extension CallbackCenter {
    /// Converts a pointer to this center's object: for the local center the address (CF-P3), for the distributed center
    /// the string that `text` reads, for the Darwin center none (CF-M6).
    package func object<Failure: Error>(
        _ pointer: UnsafeRawPointer?,
        text: (UnsafeRawPointer) throws(Failure) -> String
    ) throws(Failure) -> Object? {
        guard let pointer else { return nil }
        return switch kind {
        case .local: .address(UInt(bitPattern: pointer))
        case .darwin: nil
        case .distributed: .text(try text(pointer))
        }
    }

    /// Converts two pointers to this center's content: for the local center the pointers (CF-U3), for the distributed
    /// center the property list that `values` reads, for the Darwin center nothing (CF-U4).
    package func content<Failure: Error>(
        name: UnsafeRawPointer,
        userInfo: UnsafeRawPointer?,
        values: (UnsafeRawPointer) throws(Failure) -> UserInfo
    ) throws(Failure) -> Content {
        switch kind {
        case .local:
            return .local(.init(name: UInt(bitPattern: name), userInfo: userInfo.map { UInt(bitPattern: $0) }))
        case .darwin: return .none
        case .distributed:
            guard let userInfo else { return .none }
            return .distributed(try values(userInfo))
        }
    }
}
