/// Observers in the order of their registration, found and removed by their number in logarithmic time.
///
/// A removed one leaves a gap until half of the list is gaps, so that removing all of 100 000 is not quadratic.
package struct RegistrationList<Observer> {
    package private(set) var numbers: [UInt64] = []
    package private(set) var observers: [Observer?] = []
    private var gaps = 0

    package init() {}

    package var isEmpty: Bool { gaps == numbers.count }
    package var count: Int { numbers.count - gaps }

    /// The observers with their numbers.
    package var numbered: [(rank: UInt64, observer: Observer)] {
        zip(numbers, observers).compactMap { number, observer in observer.map { (number, $0) } }
    }

    /// - Parameter number: larger than all before.
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
