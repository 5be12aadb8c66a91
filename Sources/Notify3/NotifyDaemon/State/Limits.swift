import DBusTransport
import NotifyCenter
import NotifydProtocol

/// The limits of what notifyd keeps for one connection: far more than programs need, and far less than would harm others.
package struct Limits: Sendable, Hashable {
    package var names = 100_000
    /// Of the UTF-8 of all names together; so that all of them fit into one report.
    package var nameBytes = 8 << 20
    /// Registrations in one report.
    package var registrations = 1_000_000
    package var monitors = 1024
    /// Lists and status texts that one connection may wait for at once; each is made of all that there is.
    package var listsAtOnce = 16
    /// How often a process may be suspended; each is one message to each of its connections. As on Darwin.
    package var suspensions: UInt32 = 255
    /// The kernel takes no longer path.
    package var pathBytes = 4095

    package init() {}

    /// Calls that wait at once, for instance until the bus has said who a caller is: a process may register all of its names by then.
    var calls: CallLimits {
        var calls = CallLimits()
        // One body may hold all names of a process, and its registrations.
        (calls.bodyBytes, calls.bytesOfSender, calls.bytes) = (32 << 20, 48 << 20, 128 << 20)
        (calls.callsOfSender, calls.calls) = (names, 4 * names)
        return calls
    }

    /// For connections of users other than notifyd's own. A system bus allows each user 256 connections: all of these together stay below
    /// what would harm others.
    package static var others: Limits {
        var limits = Limits()
        (limits.names, limits.nameBytes, limits.registrations, limits.monitors) = (4096, 256 << 10, 16_384, 64)
        return limits
    }

    func check(names count: Int, bytes: Int) throws(Refusal) {
        guard count <= names, bytes <= nameBytes else {
            throw Refusal(
                .limitsExceeded,
                "a process may have registrations of \(names) names with \(nameBytes) bytes in all; cancel some"
            )
        }
    }

    func check(monitors count: Int) throws(Refusal) {
        guard count <= monitors else {
            throw Refusal(.limitsExceeded, "a process may monitor \(monitors) paths; cancel some of their tokens")
        }
    }

    func check(path: String) throws(Refusal) {
        guard path.utf8.first == UInt8(ascii: "/") else {
            throw Refusal(.invalidRequest, "could not monitor “\(path.prefix(80))”: write a path that begins with /")
        }
        guard path.utf8.count <= pathBytes, !path.utf8.contains(0) else {
            throw Refusal(.invalidRequest, "could not monitor a path of over \(pathBytes) bytes: shorten it")
        }
    }

    func check(_ report: ProcessReport) throws(Refusal) {
        try check(names: report.names.count, bytes: report.names.reduce(0) { $0 + $1.name.utf8.count })
        try check(monitors: report.names.reduce(0) { $0 + $1.monitors.count })
        guard report.names.reduce(0, { $0 + $1.registrations.count }) <= registrations else {
            throw Refusal(.limitsExceeded, "a report may have \(registrations) registrations; cancel some")
        }
    }
}
