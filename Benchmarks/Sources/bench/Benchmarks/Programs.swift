import Glibc

/// The programs that are measured, all in one folder.
struct Programs {
    /// Which peer is measured against the libdbus one.
    enum Subject: String, CaseIterable {
        case swift
        case libdbus
        case sdbus
        case gdbus
    }

    let libdbus: Contender
    let subject: Contender
    /// `nil` where the subject is another peer: the driver is then being checked, not the project.
    let swift: Swift?
    /// Each with its label, and `nil` for the contender where the peer was not built.
    let otherLibraries: [(label: String, contender: Contender?)]
    let dbusSend: String
    /// notify(3) from C by the shared library, and the service that it needs for the state.
    let notify: Contender
    let notifyd: String
    /// What waits for answers, on plain libdbus.
    let calls: Contender

    let sharedDevice: SharedDevice

    /// What a shared device consists of: its broker, its administration, and its apps.
    struct SharedDevice {
        let broker: Contender
        let administration: String
        let app: Contender
    }

    /// The programs of the project.
    struct Swift {
        /// The peer with the delivery that a program gets when it asks for none.
        let defaultDelivery: Contender
        let notifyutil: String
    }

    /// Throws `.missingProgram` where one is not there that the run cannot do without.
    init(folder: String, subject: Subject) throws(BenchmarkError) {
        libdbus = Contender(label: "libdbus", program: try Self.existing("\(folder)/peer-libdbus"))
        otherLibraries = [("sd-bus", "peer-sdbus"), ("GDBus", "peer-gdbus")].map { label, file in
            let path = "\(folder)/\(file)"
            return (label, access(path, X_OK) == 0 ? Contender(label: label, program: path) : nil)
        }
        guard let send = bench.program("dbus-send") else {
            throw BenchmarkError(.missingProgram, "dbus-send is not in PATH (Debian: dbus-bin)")
        }
        dbusSend = send
        notify = Contender(label: "ours", program: try Self.existing("\(folder)/peer-notify"))
        notifyd = try Self.existing("\(folder)/notifyd")
        sharedDevice = SharedDevice(
            broker: Contender(label: "ours", program: try Self.existing("\(folder)/shared-device-broker")),
            administration: try Self.existing("\(folder)/shared-device"),
            app: Contender(label: "ours", program: try Self.existing("\(folder)/peer-shared"))
        )
        calls = Contender(label: "libdbus", program: try Self.existing("\(folder)/peer-calls"))

        let program = try Self.existing("\(folder)/peer-\(subject.rawValue)")
        guard subject == .swift else {
            self.subject = Contender(label: subject.rawValue, program: program)
            swift = nil
            return
        }
        self.subject = Contender(label: "ours", program: program, environment: ["PEER_DELIVERY": "immediate"])
        swift = Swift(
            defaultDelivery: Contender(label: "ours", program: program, environment: ["PEER_DELIVERY": "default"]),
            notifyutil: try Self.existing("\(folder)/notifyutil")
        )
    }

    private static func existing(_ path: String) throws(BenchmarkError) -> String {
        guard access(path, X_OK) == 0 else {
            throw BenchmarkError(.missingProgram, "\(path) is not there: build with Benchmarks/run")
        }
        return path
    }
}
