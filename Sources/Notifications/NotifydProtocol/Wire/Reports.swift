import Glibc

/// One registration, as its process tells of it.
package struct RegistrationReport: Sendable, Hashable {
    package var token: Int32
    package var kind: RegistrationKind
    /// How often it is suspended.
    package var suspensions: UInt32
    /// How often it was notified, without the notices that were held back.
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
    /// Of `notify_private.h`; 0 for all.
    package var flags: UInt32

    package init(token: Int32, path: String, flags: UInt32) {
        self.token = token
        self.path = path
        self.flags = flags
    }
}

/// One name in one process.
package struct NameReport: Sendable, Hashable {
    package var name: String
    /// The state that this process set last or keeps; `nil` for none.
    package var state: StateReport?
    package var monitors: [MonitorReport]
    /// Each registration, where they were asked for.
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

/// A value and when it was set.
package struct StateReport: Sendable, Hashable {
    package var value: UInt64
    /// Nanoseconds of the machine's boot clock (`CLOCK_BOOTTIME`), which all processes share.
    package var time: UInt64

    package init(value: UInt64, time: UInt64) {
        self.value = value
        self.time = time
    }
}

/// The clock of states: it does not go back, and all processes of the machine share it.
package enum BootClock {
    /// Nanoseconds since the machine started.
    package static var now: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}

/// The report of a process about itself.
package struct ProcessReport: Sendable, Hashable {
    /// How often the whole process is suspended.
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

/// A name in notifyd's list.
package struct NameListing: Sendable, Hashable {
    package var name: String
    package var state: UInt64
    /// Whether the configuration keeps it for good.
    package var isPermanent: Bool

    package init(name: String, state: UInt64, isPermanent: Bool) {
        self.name = name
        self.state = state
        self.isPermanent = isPermanent
    }
}

/// A part of notifyd's lists. A process with many names is on several pages.
package struct ListPage: Sendable, Hashable {
    /// The names of the page's processes; on the first page those of the configuration, too.
    package var names: [NameListing] = []
    package var processes: [ProcessListing] = []
    /// What to ask for next; 0 after the last page.
    package var cursor: UInt64 = 0

    package init() {}
}

/// How much a process has notifyd keep.
package struct Amount: Sendable, Hashable {
    package var names: Int
    /// Of the UTF-8 of names and monitored paths.
    package var bytes: Int
    /// And monitored paths.
    package var registrations: Int

    package init(names: Int = 0, bytes: Int = 0, registrations: Int = 0) {
        (self.names, self.bytes, self.registrations) = (names, bytes, registrations)
    }

    /// What a report has notifyd keep.
    package init(_ report: ProcessReport) {
        self.init(names: report.names.count)
        for name in report.names {
            bytes += name.monitors.reduce(name.name.utf8.count) { $0 + $1.path.utf8.count }
            registrations += name.registrations.count + name.monitors.count
        }
    }

    /// Whether this is within another amount in every respect.
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
