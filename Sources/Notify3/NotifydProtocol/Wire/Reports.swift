import Glibc

/// One registration, as its process tells of it.
package struct RegistrationReport: Sendable, Hashable {
    package var token: Int32
    package var kind: RegistrationKind
    /// How often it is suspended.
    package var suspensions: UInt32
    /// How often it was notified, held-back ones not counted.
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
    /// The state that this process set last; `nil` for none.
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

/// What a process tells of itself.
package struct ProcessReport: Sendable, Hashable {
    /// How often the whole process is suspended.
    package var suspensions: UInt32
    package var names: [NameReport]

    package init(suspensions: UInt32 = 0, names: [NameReport] = []) {
        self.suspensions = suspensions
        self.names = names
    }
}

/// A process, as notifyd lists it: its report, and who it is by the bus's word.
package struct ProcessListing: Sendable, Hashable {
    /// Its unique bus name.
    package var connection: String
    package var process: UInt32
    package var user: UInt32
    /// The program's file; empty where notifyd may not see it.
    package var program: String
    package var report: ProcessReport

    package init(connection: String, process: UInt32, user: UInt32, program: String, report: ProcessReport) {
        self.connection = connection
        self.process = process
        self.user = user
        self.program = program
        self.report = report
    }
}

/// A name, as notifyd lists it.
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
