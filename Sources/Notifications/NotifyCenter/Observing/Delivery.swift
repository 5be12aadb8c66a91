public import Dispatch

/// Where an observer's handler runs.
///
/// Each handler is called for one notification at a time, in the order of arrival. Notifications are handed over in the order
/// of registration, so observers that share a serial queue are called in that order, post by post (CF-D3).
public struct Delivery: Sendable {
    enum Kind: Sendable {
        case background
        case immediate
        case executor(any TaskExecutor)
        /// Hands over one job for each delivery. Each must run, one after the other and in order.
        case scheduled(@Sendable (@escaping @Sendable () -> Void) -> Void)
        /// The observer takes by itself, and is told when there is something.
        case taken(wake: @Sendable () -> Void)
    }

    let kind: Kind

    /// On a thread of the system's choice. A slow handler delays nobody but itself. The default.
    public static let background = Delivery(kind: .background)

    /// On the thread that reads the bus, without a queue in between: the fastest, for handlers that return at once. A slow
    /// one delays all others of the process.
    public static let immediate = Delivery(kind: .immediate)

    /// On the main queue, which runs in `dispatchMain()`, in a running main run loop, and in a program with an `async` main.
    public static let main = queue(.main)

    /// On a serial queue. On a concurrent one, calls may overlap and pass each other.
    public static func queue(_ queue: DispatchQueue) -> Delivery { scheduled { queue.async(execute: $0) } }

    /// By this function, which is given one job for each delivery; each must run, one after the other and in order.
    package static func scheduled(_ schedule: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) -> Delivery
    {
        Delivery(kind: .scheduled(schedule))
    }

    /// In a task on this executor.
    public static func executor(_ executor: any TaskExecutor) -> Delivery { Delivery(kind: .executor(executor)) }
}
