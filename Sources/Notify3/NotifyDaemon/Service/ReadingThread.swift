import DBusTransport

/// Runs an actor on a connection's reading thread: calls and signals reach it at once and in the bus's order, and nothing in it
/// needs a lock.
final class ReadingThread: SerialExecutor {
    private let connection: DBusConnection

    init(_ connection: DBusConnection) { self.connection = connection }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        connection.perform { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    func checkIsolated() {
        // Who is not on the thread has been started by the actor's own author in the wrong place; no message brings that about.
        precondition(connection.isOnReadingThread)
    }
}
