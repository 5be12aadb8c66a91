import DBusTransport
import NotifyCenter
import Synchronization

/// The failures that the functions could not throw, since the first use.
enum Failures {
    private static let reported = Locked<[String]>([])
    private static let observation = UnthrownFailures.observe { failure in
        reported.withLock { $0.append(failure.description) }
    }

    static func collect() { _ = observation }

    static func contains(_ function: String, _ texts: String...) -> Bool {
        reported.withLock { reported in
            reported.contains { line in line.hasPrefix(function + ":") && texts.allSatisfy(line.contains) }
        }
    }
}
