import NotifyCenter

/// What notifyd is still to be told of names that got their first registration, or lost their last. Pure.
///
/// A name that goes and comes again is told as both, because its state goes (notify(3), a.11); any number of comings and goings
/// between two tellings is told as one.
struct NameChanges: Sendable {
    enum Telling: Sendable, Equatable {
        case enter(NotificationName)
        case leave(NotificationName)
    }

    private enum Change {
        case came
        case went
        case wentAndCame
    }

    private var changes: [NotificationName: Change] = [:]

    var isEmpty: Bool { changes.isEmpty }

    mutating func came(_ name: NotificationName) {
        changes[name] =
            switch changes[name] {
            case nil, .came: .came
            case .went, .wentAndCame: .wentAndCame
            }
    }

    mutating func went(_ name: NotificationName) {
        switch changes[name] {
        case .came: changes[name] = nil
        case nil, .went, .wentAndCame: changes[name] = .went
        }
    }

    /// All that is to be told, in an order that ends right.
    mutating func take() -> [Telling] {
        defer { changes = [:] }
        return changes.flatMap { name, change -> [Telling] in
            switch change {
            case .came: [.enter(name)]
            case .went: [.leave(name)]
            case .wentAndCame: [.leave(name), .enter(name)]
            }
        }
    }
}
