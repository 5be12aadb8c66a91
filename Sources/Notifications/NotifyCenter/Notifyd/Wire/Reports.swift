import Glibc

/// One registration, as its process reports it.
package struct RegistrationReport: Sendable, Hashable {
    package var token: Int32
    package var kind: RegistrationKind
    /// The number of suspensions in force.
    package var suspensions: UInt32
    /// The number of delivered notifications, without held-back ones.
    package var deliveries: UInt64

    package init(token: Int32, kind: RegistrationKind, suspensions: UInt32, deliveries: UInt64) {
        self.token = token
        self.kind = kind
        self.suspensions = suspensions
        self.deliveries = deliveries
    }
}

/// A path that a registration monitors.
package struct MonitorReport: Sendable, Hashable {
    package var token: Int32
    package var path: String
    /// The flags of `notify_private.h`; 0 for all.
    package var flags: UInt32

    package init(token: Int32, path: String, flags: UInt32) {
        self.token = token
        self.path = path
        self.flags = flags
    }
}

package struct NameReport: Sendable, Hashable {
    package var name: String
    /// The state that this process last set or keeps; `nil` for none.
    package var state: StateReport?
    package var monitors: [MonitorReport]
    /// Each registration, if the registrations were requested.
    package var registrations: [RegistrationReport]

    package init(
        name: String,
        state: StateReport? = nil,
        monitors: [MonitorReport] = [],
        registrations: [RegistrationReport] = []
    ) {
        self.name = name
        self.state = state
        self.monitors = monitors
        self.registrations = registrations
    }
}

/// A value with the time at which it was set.
package struct StateReport: Sendable, Hashable {
    package var value: UInt64
    /// Nanoseconds of the machine's boot clock (`CLOCK_BOOTTIME`), which all processes share.
    package var time: UInt64

    package init(value: UInt64, time: UInt64) {
        self.value = value
        self.time = time
    }
}

/// The clock of states. It never goes back, and all processes of the machine share it.
package enum BootClock {
    /// Nanoseconds since the machine started.
    package static var now: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}

package struct ProcessReport: Sendable, Hashable {
    /// The number of suspensions of the whole process in force.
    package var suspensions: UInt32
    package var names: [NameReport]

    package init(suspensions: UInt32 = 0, names: [NameReport] = []) {
        self.suspensions = suspensions
        self.names = names
    }
}

/// A process in notifyd's list: its report or a part of it, and its identity according to the bus.
package struct ProcessListing: Sendable, Hashable {
    /// Its unique bus name.
    package var connection: String
    package var process: UInt32
    package var user: UInt32
    package var report: ProcessReport

    package init(connection: String, process: UInt32, user: UInt32, report: ProcessReport) {
        self.connection = connection
        self.process = process
        self.user = user
        self.report = report
    }
}

package struct NameListing: Sendable, Hashable {
    package var name: String
    package var state: UInt64
    /// Whether the configuration keeps the name permanently.
    package var isPermanent: Bool

    package init(name: String, state: UInt64, isPermanent: Bool) {
        self.name = name
        self.state = state
        self.isPermanent = isPermanent
    }
}

/// A part of notifyd's lists. A process with many names is on several pages.
package struct ListPage: Sendable, Hashable {
    /// The names of the page's processes. The first page also has the names of the configuration.
    package var names: [NameListing] = []
    package var processes: [ProcessListing] = []
    /// The cursor of the next page; 0 after the last page.
    package var cursor: UInt64 = 0

    package init() {}
}

/// The amount of data that notifyd keeps for a process.
package struct Amount: Sendable, Hashable {
    package var names: Int
    /// The UTF-8 bytes of names and monitored paths.
    package var bytes: Int
    /// Registrations and monitored paths.
    package var registrations: Int

    package init(names: Int = 0, bytes: Int = 0, registrations: Int = 0) {
        (self.names, self.bytes, self.registrations) = (names, bytes, registrations)
    }

    package init(_ report: ProcessReport) {
        self.init(names: report.names.count)
        for name in report.names {
            bytes += name.monitors.reduce(name.name.utf8.count) { $0 + $1.path.utf8.count }
            registrations += name.registrations.count + name.monitors.count
        }
    }

    /// Whether this amount is within another one in every respect.
    package func isWithin(_ other: Amount) -> Bool {
        names <= other.names && bytes <= other.bytes && registrations <= other.registrations
    }

    package static func + (left: Amount, right: Amount) -> Amount {
        Amount(
            names: left.names + right.names,
            bytes: left.bytes + right.bytes,
            registrations: left.registrations + right.registrations
        )
    }

    package static func - (left: Amount, right: Amount) -> Amount {
        Amount(
            names: left.names - right.names,
            bytes: left.bytes - right.bytes,
            registrations: left.registrations - right.registrations
        )
    }
}
