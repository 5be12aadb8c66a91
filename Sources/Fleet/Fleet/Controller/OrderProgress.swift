/// How far the devices of an order are.
package struct OrderProgress: Sendable {
    /// By ``Standing/rank``.
    package fileprivate(set) var counts = [UInt64](repeating: 0, count: Standing.words.count)
    package fileprivate(set) var undoneCount: UInt64 = 0
    /// Apps that were let off.
    package fileprivate(set) var waived: UInt64 = 0
    package fileprivate(set) var worst: [(name: String, standing: Standing)] = []
}

extension ControllerState {
    /// How far each device is that the order is for: those that are listed (FL-14).
    package func standings(of recorded: RecordedOrder, now: Double) -> [(name: String, standing: Standing)] {
        let names: [String] =
            switch recorded.target {
            case .all: devices.filter(\.value.isListed).map(\.key)
            case .devices(let names): Array(names)
            }
        return names.map { name in
            let standing = devices[name]?.standing(recorded.number, recorded.scope, highest: highest, now: now)
            return (name, standing ?? .unknown)
        }
    }

    /// How far an order is: how many devices there are in each state, and the worst of those that are not done, each state by name. It looks at each
    /// device once: there may be 100,000.
    package func progress(of recorded: RecordedOrder, now: Double, atMost limit: Int) -> OrderProgress {
        var progress = OrderProgress()
        var undone = [[(name: String, standing: Standing)]](repeating: [], count: Standing.words.count)
        func add(_ name: String, _ standing: Standing) {
            progress.counts[standing.rank] += 1
            if case .clean(let waived) = standing { progress.waived += waived }
            guard !standing.isDone else { return }
            progress.undoneCount += 1
            if undone[standing.rank].count < limit { undone[standing.rank].append((name, standing)) }
        }
        switch recorded.target {
        case .all:
            for name in names {
                guard let device = devices[name], device.isListed else { continue }
                add(name, device.standing(recorded.number, recorded.scope, highest: highest, now: now))
            }
        case .devices(let names):
            for name in names.sorted() {
                add(
                    name,
                    devices[name]?.standing(recorded.number, recorded.scope, highest: highest, now: now) ?? .unknown
                )
            }
        }
        progress.worst = Array(undone.joined().prefix(limit))
        return progress
    }

    /// The devices that report and are not listed.
    package var unlisted: [String] { devices.filter { !$0.value.isListed }.map(\.key).sorted() }
}
