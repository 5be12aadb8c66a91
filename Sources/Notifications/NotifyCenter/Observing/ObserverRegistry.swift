/// The index that finds the receivers of a post (rules CF-A4, CF-M1, CF-M2, CF-D3). Pure: no locks, threads or D-Bus
/// (architecture, D5).
///
/// A name or object of `nil` at registration means any. Receivers come in the order of their registration, whether or
/// not they gave a name and an object.
struct ObserverRegistry<Object: Hashable, Observer> {
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

    /// Removes a registration. An unknown key is ignored (CF-R5).
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

    /// Returns the receivers of a post of `name` about `object`. A post without an object reaches only observers of any
    /// object (CF-P2).
    ///
    /// - Returns: the receivers in order, with `nil` for some that were removed. Almost every post matches one stored
    ///   list, which is returned without a copy.
    func receivers(name: NotificationName, object: Object?) -> [Observer?] {
        let named = byName[name]
        if anyName.isEmpty, named?.byObject.isEmpty ?? true { return named?.anyObject.observers ?? [] }
        let lists = [named, anyName].flatMap { index in
            [index?.anyObject, object.flatMap { index?.byObject[$0] }].compactMap(\.self).filter { !$0.isEmpty }
        }
        return lists.count <= 1 ? lists.first?.observers ?? [] : Self.merged(lists)
    }

    /// Every observer with its rank in the order of registration. The array itself is unordered.
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

    /// Merges up to four ordered lists into one.
    private static func merged(_ lists: [RegistrationList<Observer>]) -> [Observer?] {
        var positions = lists.map { _ in 0 }
        var result: [Observer?] = []
        while true {
            var first: Int?
            for index in lists.indices where positions[index] < lists[index].numbers.count {
                let number = lists[index].numbers[positions[index]]
                if first.map({ number < lists[$0].numbers[positions[$0]] }) ?? true { first = index }
            }
            guard let first else { return result }
            result.append(lists[first].observers[positions[first]])
            positions[first] += 1
        }
    }
}

extension ObserverRegistry.Key: Sendable where Object: Sendable {}

/// Observers in the order of their registration. Finding or removing one by its number takes logarithmic time.
///
/// A removal leaves a gap. The list is compacted when more than half of it is gaps, so that removing all of 100 000 is
/// not quadratic.
package struct RegistrationList<Observer> {
    package private(set) var numbers: [UInt64] = []
    package private(set) var observers: [Observer?] = []
    private var gaps = 0

    package init() {}

    package var isEmpty: Bool { gaps == numbers.count }
    package var count: Int { numbers.count - gaps }

    package var numbered: [(rank: UInt64, observer: Observer)] {
        zip(numbers, observers).compactMap { number, observer in observer.map { (number, $0) } }
    }

    /// - Parameter number: larger than all earlier numbers.
    package mutating func append(_ observer: Observer, number: UInt64) {
        numbers.append(number)
        observers.append(observer)
    }

    package mutating func remove(number: UInt64) -> Observer? {
        guard let index = index(of: number), let observer = observers[index] else { return nil }
        observers[index] = nil
        gaps += 1
        if gaps * 2 > numbers.count { compact() }
        return observer
    }

    private func index(of number: UInt64) -> Int? {
        var (low, high) = (0, numbers.count)
        while low < high {
            let middle = (low + high) / 2
            if numbers[middle] < number { low = middle + 1 } else { high = middle }
        }
        return low < numbers.count && numbers[low] == number ? low : nil
    }

    private mutating func compact() {
        let kept = zip(numbers, observers).filter { $0.1 != nil }
        numbers = kept.map(\.0)
        observers = kept.map(\.1)
        gaps = 0
    }
}

extension RegistrationList: Sendable where Observer: Sendable {}
