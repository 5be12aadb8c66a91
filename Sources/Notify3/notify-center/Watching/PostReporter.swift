import Basics
import CommandSupport
import DBus
import Glibc
import NotifyCenter
import Synchronization

/// Prints posts in the order of arrival, each when the lookup of its sender is done. Used on the main thread.
final class PostReporter {
    private let isJSON: Bool
    private let inbox: PostInbox
    private let senders: Senders?
    private let connection: DBusConnection
    private var remaining: Int?
    private var observations: [NotificationObservation] = []

    /// - Parameters:
    ///   - count: The number of posts after which ``run()`` ends; `nil` for no end.
    ///   - findsSenders: Whether lines show the poster's process and program.
    /// - Throws: ``DBusError`` if the bus cannot be reached.
    init(isJSON: Bool, count: Int?, findsSenders: Bool) throws(DBusError) {
        (self.isJSON, remaining) = (isJSON, count)
        let inbox = try PostInbox()
        self.inbox = inbox
        connection = try BusConnections.connection(to: .fromEnvironment)
        senders = findsSenders ? try Senders(connection) { inbox.wake() } : nil
    }

    /// Observes a name in the Darwin center; `nil` for all names. In force on return.
    func observeDarwin(_ name: NotificationName?) throws(DBusError) {
        let observation = try DarwinNotifyCenter(connection: connection).observeAny(name) { [inbox, senders] in
            let post = Post(name: $0.name, sender: $0.sender, center: .darwin)
            inbox.add((post, senders?.lookup(post.sender)))
        }
        observations.append(observation)
    }

    /// Observes a name in the distributed center, for one object or, with `nil`, for all. In force on return.
    func observeDistributed(_ name: NotificationName?, object: String?) throws(DBusError) {
        let center = DistributedNotifyCenter(connection: connection)
        let observation = try center.observe(name, object: object, delivery: .immediate) { [inbox, senders] in
            let content = Post.Center.distributed(object: $0.object, userInfo: $0.userInfo)
            let post = Post(name: $0.name, sender: $0.sender, center: content)
            inbox.add((post, senders?.lookup(post.sender)))
        }
        observations.append(observation)
    }

    /// Prints until the requested number of posts is reached.
    func run() {
        while remaining != 0 {
            // Standard output is polled only for the end of its reader.
            var descriptors = [
                pollfd(fd: Output.standard.rawValue, events: 0, revents: 0),
                pollfd(fd: inbox.descriptor, events: Int16(POLLIN), revents: 0),
            ]
            guard poll(&descriptors, nfds_t(descriptors.count), -1) > 0 else { continue }
            if descriptors[0].revents != 0 { Output.endForBrokenPipe() }
            if descriptors[1].revents != 0 { empty() }
        }
    }

    private func empty() {
        let (items, dropped) = inbox.takeKnown(atMost: remaining)
        for (post, lookup) in items {
            let sender = senders == nil ? nil : lookup?.answer ?? Sender()
            Output.standard.write(post.line(isJSON: isJSON, sender: sender) + "\n")
        }
        remaining = remaining.map { $0 - items.count }
        if dropped > 0 { Output.complain("\(dropped) posts are not shown, because the output is not read fast enough") }
    }
}

/// Passes posts from the thread that reads the bus to the main thread, in order. Bounded, because the reader of
/// standard output may be slower than the posts.
final class PostInbox: Sendable {
    typealias Item = (post: Post, sender: SenderLookup?)

    private struct State {
        var items: [Item] = []
        var bytes = 0
        var dropped = 0
    }

    private static let maximumCount = 65_536
    private static let maximumBytes = 64 << 20

    private let bell: EventDescriptor
    private let state = Locked(State())

    /// Readable after a new post or a finished lookup, until ``takeKnown(atMost:)``.
    var descriptor: CInt { bell.descriptor }

    /// - Throws: ``DBusError/Code/noResources`` if there are no descriptors left.
    init() throws(DBusError) {
        do { bell = try EventDescriptor("watch") } catch { throw DBusError(error) }
    }

    /// Adds a post, from any thread. A full inbox drops the post and counts it.
    func add(_ item: Item) {
        let size = item.post.size
        state.withLock { state in
            if state.items.count < Self.maximumCount, state.bytes + size <= Self.maximumBytes {
                state.items.append(item)
                state.bytes += size
            } else {
                state.dropped += 1
            }
        }
        wake()
    }

    func wake() { bell.signal() }

    /// Removes and returns the posts at the front whose sender lookups are done, and the number of posts dropped since
    /// the last call.
    func takeKnown(atMost limit: Int?) -> (items: [Item], dropped: Int) {
        bell.clear()
        return state.withLock { state in
            let known = state.items.prefix(limit ?? .max).prefix { item in
                guard let sender = item.sender else { return true }
                return sender.answer != nil
            }
            state.items.removeFirst(known.count)
            state.bytes -= known.reduce(0) { $0 + $1.post.size }
            defer { state.dropped = 0 }
            return (Array(known), state.dropped)
        }
    }
}
