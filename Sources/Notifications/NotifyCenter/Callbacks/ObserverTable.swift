/// Which registrations an observer has, for centers whose observers are removed by criteria and not by what registering
/// returned. Pure.
package struct ObserverTable<Observer: Hashable, Object: Hashable, Registration> {
    private struct Entry {
        let name: NotificationName?
        let object: Object?
        let registration: Registration
    }

    private var byObserver: [Observer: [Entry]] = [:]

    package init() {}

    /// Equal registrations are kept side by side (CF-A5).
    package mutating func add(
        _ registration: Registration,
        of observer: Observer,
        name: NotificationName?,
        object: Object?
    ) {
        byObserver[observer, default: []].append(Entry(name: name, object: object, registration: registration))
    }

    /// Takes out one registration, if it is there.
    package mutating func remove(_ registration: Registration, of observer: Observer) where Registration: AnyObject {
        guard var entries = byObserver.removeValue(forKey: observer) else { return }
        entries.removeAll { $0.registration === registration }
        if !entries.isEmpty { byObserver[observer] = entries }
    }

    /// Every registration.
    package var all: [Registration] { byObserver.values.flatMap { $0.map(\.registration) } }

    /// Takes out the observer's registrations that meet the criteria; `nil` is no criterion (CF-R2). One that was made for
    /// any name is not met by a given name, nor one for any object by a given object (CF-R3).
    package mutating func remove(_ observer: Observer, name: NotificationName?, object: Object?) -> [Registration] {
        guard var entries = byObserver.removeValue(forKey: observer) else { return [] }
        let isMet = { (entry: Entry) in
            (name == nil || entry.name == name) && (object == nil || entry.object == object)
        }
        let removed = entries.filter(isMet).map(\.registration)
        entries.removeAll(where: isMet)
        if !entries.isEmpty { byObserver[observer] = entries }
        return removed
    }
}
