/// What is watched, and how often each is still to be reported. Pure.
struct Registrations {
    /// Tokens of notify(3), and the distributed center's, which this program gives out by itself.
    enum ID: Hashable, Sendable {
        case darwin(CInt)
        case distributed(CInt)
    }

    struct Entry: Equatable {
        let id: ID
        let name: String
        let source: Watch.Source
        /// `nil` for ever.
        fileprivate(set) var remaining: Int?

        init(id: ID, watch: Watch) {
            (self.id, name, source, remaining) = (id, watch.name, watch.source, watch.count)
        }

        /// `nil` for the distributed center.
        var kind: Kind? {
            if case .darwin(let kind) = source { kind } else { nil }
        }
    }

    /// In the order of the command line.
    private(set) var entries: [Entry] = []

    var isEmpty: Bool { entries.isEmpty }

    mutating func add(_ entry: Entry) { entries.append(entry) }

    /// The entries of a kind.
    func entries(where matches: (Kind) -> Bool) -> [Entry] {
        entries.filter { entry in
            guard let kind = entry.kind else { return false }
            return matches(kind)
        }
    }

    /// Counts one report of a registration.
    ///
    /// - Returns: the registration, and whether it has ended; `nil` where it had ended before.
    mutating func take(_ id: ID) -> (entry: Entry, isOver: Bool)? {
        guard let index = entries.firstIndex(where: { $0.id == id }) else { return nil }
        if let remaining = entries[index].remaining { entries[index].remaining = remaining - 1 }
        let entry = entries[index]
        guard entry.remaining == 0 else { return (entry, false) }
        entries.remove(at: index)
        return (entry, true)
    }
}
