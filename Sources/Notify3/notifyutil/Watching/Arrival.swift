import NotifyCenter

/// What comes to the main thread from others.
enum Arrival: Sendable {
    /// A token of notify(3) was notified on a queue.
    case token(CInt, Timestamp)
    /// This process got a signal.
    case signal(CInt)
    case distributed(CInt, DistributedNotification, Timestamp)
    /// Anybody posted anything.
    case post(MonitoredPost, SenderLookup?)
}
