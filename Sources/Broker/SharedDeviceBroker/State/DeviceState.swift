package import SharedDevice

/// How this device is managed, as its configuration says. The broker always knows; only clients know a third answer.
package enum ManagedMode: String, Sendable, Codable {
    /// Many people, one at a time: at most one account is signed in, for every app.
    case shared
    /// One person's device: the broker signs nobody in.
    case personal
}

/// What the broker holds for the whole device.
///
/// A personal device has no account; `DeviceStateMachine` and the store's schema both see to it.
package struct DeviceState: Sendable {
    /// How the device is managed.
    package let mode: ManagedMode
    /// Who is signed in, if anyone.
    package let account: Account?
    /// Grows by exactly one with each change of account or mode, so two states of the same epoch are the same state. Where it
    /// begins is the store's matter.
    package let epoch: UInt64

    /// A new device: personal, nobody signed in, epoch 0.
    package static let initial = DeviceState(mode: .personal, account: nil, epoch: 0)

    package init(mode: ManagedMode, account: Account?, epoch: UInt64) {
        self.mode = mode
        self.account = account
        self.epoch = epoch
    }

    /// The state that follows this one.
    package func next(mode: ManagedMode, account: Account?) -> DeviceState {
        DeviceState(mode: mode, account: account, epoch: epoch + 1)
    }
}
