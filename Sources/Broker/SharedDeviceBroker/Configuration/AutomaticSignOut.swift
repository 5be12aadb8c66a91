/// When the device signs its user out by itself.
package struct AutomaticSignOut: Sendable, Equatable {
    /// After so long without anybody at the device; more than zero. `nil`: never for that reason.
    package var inactivity: Duration?
    /// At these local times each day; sorted, each once.
    package private(set) var shiftEnds: [TimeOfDay]
    /// When the screen is locked.
    package var onScreenLock: Bool
    /// When the desktop session ends.
    package var onLogout: Bool

    package init(
        inactivity: Duration? = nil,
        shiftEnds: [TimeOfDay] = [],
        onScreenLock: Bool = false,
        onLogout: Bool = false
    ) {
        self.inactivity = inactivity
        self.shiftEnds = Set(shiftEnds).sorted()
        self.onScreenLock = onScreenLock
        self.onLogout = onLogout
    }
}
