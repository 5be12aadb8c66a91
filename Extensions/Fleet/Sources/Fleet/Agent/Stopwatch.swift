package struct Moment: Sendable, Hashable {
    /// Seconds since the machine booted, including sleep.
    package let uptime: Double
    /// Seconds since 1970 by the wall clock, which may jump.
    package let wall: Double
    /// The boot ID to which `uptime` belongs.
    package let boot: String

    package init(uptime: Double, wall: Double, boot: String) {
        (self.uptime, self.wall, self.boot) = (uptime, wall, boot)
    }
}

/// A lower bound of the time since a moment, across restarts of the machine.
///
/// The machine's uptime always counts. After a restart the wall clock counts too, and the larger value wins. So a wall
/// clock that is set back, or a machine that is off, cannot extend a limit. A slow clock that is corrected while the
/// machine runs does not shorten it.
///
/// After a restart, a wall clock before the beginning is wrong, and the time that the machine was off is unknown. A
/// limit then ends ``grace`` after the boot, unless the clock is corrected.
package struct Stopwatch: Sendable, Hashable {
    /// How long after its boot a machine may wait for a corrected clock or for heartbeats, in seconds.
    static let grace = 300.0
    /// The interval of saving the count, in seconds. A restart of the machine loses at most this much.
    static let step = 60.0

    package let begin: Moment
    /// The seconds of uptime from `begin` to `mark`, and that moment.
    package private(set) var counted: Double
    package private(set) var mark: Moment

    package init(begin: Moment) { self.init(begin: begin, counted: 0, mark: begin) }

    init(begin: Moment, counted: Double, mark: Moment) {
        (self.begin, self.counted, self.mark) = (begin, counted, mark)
    }

    /// The known uptime since the beginning.
    private func run(_ now: Moment) -> Double {
        counted + max(mark.boot == now.boot ? now.uptime - mark.uptime : now.uptime, 0)
    }

    /// Whether the wall clock is wrong and the time that the machine was off is unknown.
    func isInDoubt(_ now: Moment) -> Bool { begin.boot != now.boot && now.wall < begin.wall }

    /// A lower bound of the seconds since the beginning.
    func seconds(_ now: Moment) -> Double { max(run(now), begin.boot == now.boot ? 0 : now.wall - begin.wall, 0) }

    /// The seconds until a limit is reached.
    func left(of limit: Double, _ now: Moment) -> Double {
        let left = limit - seconds(now)
        return isInDoubt(now) ? min(left, Self.grace - now.uptime) : left
    }

    /// Updates the count, so that it survives a restart of the machine. Returns whether there is a change to save.
    mutating func count(_ now: Moment) -> Bool {
        let total = run(now)
        guard mark.boot != now.boot || total - counted >= Self.step else { return false }
        (counted, mark) = (total, now)
        return true
    }
}
