/// How a registration is notified, in the words of notifyutil.
package enum RegistrationKind: String, Sendable, Hashable, CaseIterable {
    /// Not at all; `notify_check` reads it in the process.
    case check
    /// Not at all; Darwin's server answers its `notify_check`.
    case plain
    /// A block on a queue.
    case dispatch
    /// A signal to the process.
    case signal
    /// A descriptor to read tokens from.
    case file
    /// The same by the name of a Mach port.
    case port
}
