/// What time it is on a device.
package struct Moment: Sendable, Hashable {
    /// Seconds since the machine started, with those in which it slept.
    package let uptime: Double
    /// Seconds since 1970 by the wall clock, which may jump.
    package let wall: Double
    /// Names the run of the machine that `uptime` belongs to.
    package let boot: String

    package init(uptime: Double, wall: Double, boot: String) {
        self.uptime = uptime
        self.wall = wall
        self.boot = boot
    }
}

/// How long ago something was, at the least, also over restarts of the machine.
///
/// All the time that the machine has run since counts; after a restart of the machine the wall clock counts, too, and the one that says more holds. So
/// whoever sets the wall clock back gains nothing, and neither does a machine that was off; and nobody loses time when a clock that was behind at the
/// machine's start is put right while it runs. A wall clock that stands before the beginning, after a restart, is wrong, and nobody
/// knows how long the machine was off: then a limit of time is over ``grace`` after the start, unless the clock is put right.
package struct Stopwatch: Sendable, Hashable {
    /// For how long after its start a machine may hope that its clock is put right, or that the controller is heard, in seconds: some heartbeats.
    static let grace = 300.0
    /// How often what has run is put on the disk, in seconds: a restart of the machine loses that much at the most.
    static let step = 60.0

    package let begin: Moment
    /// The seconds that the machine has run from `begin` to `mark`, and that moment.
    package private(set) var counted: Double
    package private(set) var mark: Moment

    package init(begin: Moment) { self.init(begin: begin, counted: 0, mark: begin) }

    init(begin: Moment, counted: Double, mark: Moment) {
        (self.begin, self.counted, self.mark) = (begin, counted, mark)
    }

    /// For how long the machine has run since, as far as it is known.
    private func run(_ now: Moment) -> Double {
        counted + max(mark.boot == now.boot ? now.uptime - mark.uptime : now.uptime, 0)
    }

    /// Whether the wall clock is wrong, and it is unknown for how long the machine was off.
    func isInDoubt(_ now: Moment) -> Bool { begin.boot != now.boot && now.wall < begin.wall }

    /// The seconds since the beginning, at the least.
    func seconds(_ now: Moment) -> Double { max(run(now), begin.boot == now.boot ? 0 : now.wall - begin.wall, 0) }

    /// How many seconds are left until a limit is reached.
    func left(of limit: Double, _ now: Moment) -> Double {
        let left = limit - seconds(now)
        return isInDoubt(now) ? min(left, Self.grace - now.uptime) : left
    }

    /// Counts up to now: what has run by now is known after the next restart of the machine, too.
    ///
    /// - Returns: whether there is something new for the disk.
    mutating func count(_ now: Moment) -> Bool {
        let total = run(now)
        guard mark.boot != now.boot || total - counted >= Self.step else { return false }
        (counted, mark) = (total, now)
        return true
    }
}
