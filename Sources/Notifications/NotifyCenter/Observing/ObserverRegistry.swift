/// Who receives which post (rules CF-A4, CF-M1, CF-M2, CF-D3). Pure: no locks, threads or D-Bus (architecture, D5); the
/// suspension of a center belongs here too.
///
/// A name or object of `nil` at registration means any. Receivers come in the order of their registration, whichever of
/// name and object they gave.
struct ObserverRegistry<Object: Hashable, Observer> {
    /// What a registration is removed by.
    struct Key: Hashable {
        let number: UInt64
        let name: NotificationName?
        let object: Object?
    }

    private struct ObjectIndex {
        var anyObject = RegistrationList<Observer>()
        var byObject: [Object: RegistrationList<Observer>] = [:]
        var isEmpty: Bool { anyObject.isEmpty && byObject.isEmpty }
    }

    private var byName: [NotificationName: ObjectIndex] = [:]
    private var anyName = ObjectIndex()
    private var nextNumber: UInt64 = 0
    /// Registrations in force.
    private(set) var count = 0

    mutating func add(_ observer: Observer, name: NotificationName?, object: Object?) -> Key {
        let key = Key(number: nextNumber, name: name, object: object)
        nextNumber += 1
        count += 1
        if let name {
            Self.add(observer, key, to: &byName[name, default: ObjectIndex()])
        } else {
            Self.add(observer, key, to: &anyName)
        }
        return key
    }

    /// Removes a registration; what is not there is no error (CF-R5).
    @discardableResult
    mutating func remove(_ key: Key) -> Observer? {
        let removed: Observer?
        if let name = key.name {
            guard let index = byName.index(forKey: name) else { return nil }
            removed = Self.remove(key, from: &byName.values[index])
            if byName.values[index].isEmpty { byName.remove(at: index) }
        } else {
            removed = Self.remove(key, from: &anyName)
        }
        if removed != nil { count -= 1 }
        return removed
    }

    /// Who receives a post of `name` about `object`; of `nil`, only those who asked for any object (CF-P2).
    func receivers(name: NotificationName, object: Object?) -> [Observer] {
        var lists: [RegistrationList<Observer>] = []
        func gather(_ index: ObjectIndex) {
            if !index.anyObject.isEmpty { lists.append(index.anyObject) }
            if let object, let list = index.byObject[object] { lists.append(list) }
        }
        let named = byName[name]
        if anyName.isEmpty, named?.byObject.isEmpty ?? true {
            // What almost every post finds.
            return named?.anyObject.observers.compactMap(\.self) ?? []
        }
        if let named { gather(named) }
        gather(anyName)
        if lists.count <= 1 { return lists.first?.observers.compactMap(\.self) ?? [] }
        return Self.merged(lists)
    }

    /// Every observer and its rank in the order of registration; themselves in no order.
    var all: [(rank: UInt64, observer: Observer)] {
        (Array(byName.values) + [anyName]).flatMap { index in
            ([index.anyObject] + index.byObject.values).flatMap(\.numbered)
        }
    }

    private static func add(_ observer: Observer, _ key: Key, to index: inout ObjectIndex) {
        if let object = key.object {
            index.byObject[object, default: RegistrationList()].append(observer, number: key.number)
        } else {
            index.anyObject.append(observer, number: key.number)
        }
    }

    private static func remove(_ key: Key, from index: inout ObjectIndex) -> Observer? {
        guard let object = key.object else { return index.anyObject.remove(number: key.number) }
        let removed = index.byObject[object]?.remove(number: key.number)
        if index.byObject[object]?.isEmpty == true { index.byObject[object] = nil }
        return removed
    }

    /// Up to four lists, each in order, as one in order.
    private static func merged(_ lists: [RegistrationList<Observer>]) -> [Observer] {
        var positions = lists.map { _ in 0 }
        var result: [Observer] = []
        while true {
            var first: Int?
            for index in lists.indices where positions[index] < lists[index].numbers.count {
                let number = lists[index].numbers[positions[index]]
                if first.map({ number < lists[$0].numbers[positions[$0]] }) ?? true { first = index }
            }
            guard let first else { return result }
            if let observer = lists[first].observers[positions[first]] { result.append(observer) }
            positions[first] += 1
        }
    }
}

extension ObserverRegistry.Key: Sendable where Object: Sendable {}
