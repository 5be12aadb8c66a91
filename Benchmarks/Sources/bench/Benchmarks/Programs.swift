import Glibc

/// A program in the comparison: a peer built on one library.
struct Contender: Equatable {
    let label: String
    let program: String
    var environment: [String: String] = [:]
    /// A program that runs this one, with its arguments; empty for none.
    var launcher: [String] = []

    /// The command that makes it play `role` on the bus at `address`.
    func command(_ role: [String], address: String) -> Command {
        var command = Command(program: program, arguments: role, environment: environment)
        command.environment["DBUS_SESSION_BUS_ADDRESS"] = address
        return command.launched(by: launcher)
    }
}

/// The measured programs, all in one folder.
struct Programs {
    /// The peer that is measured against the libdbus peer.
    enum Subject: String, CaseIterable {
        case swift
        case libdbus
        case sdbus
        case gdbus
    }

    struct Swift {
        /// The peer with the default delivery.
        let defaultDelivery: Contender
        /// The peer with libdbus linked statically, as in notifyutil.
        let staticLibdbus: Contender
        let notifyutil: String
    }

    /// The programs of a shared device: its broker, its administration, and its apps.
    struct SharedDevice {
        let broker: Contender
        let administration: String
        let app: Contender
    }

    let libdbus: Contender
    /// The same program with libdbus linked statically, as in notifyutil. `nil` if there is no static libdbus.
    let staticLibdbus: Contender?
    let subject: Contender
    /// `nil` if the subject is another peer, for a check of the driver itself.
    let swift: Swift?
    /// Each with its label. The contender is `nil` if the peer was not built.
    let otherLibraries: [(label: String, contender: Contender?)]
    let dbusSend: String
    /// notify(3) from C through the shared library, and the service that keeps its state.
    let notify: Contender
    let notifyd: String
    /// The baseline for calls that wait for a response, on plain libdbus.
    let calls: Contender
    /// A device and its apps on plain libdbus, with the messages of a sign-out and no work.
    let signOut: Contender
    let sharedDevice: SharedDevice
    /// The LD_PRELOAD library that counts the allocations of a program.
    let allocationCounter: String

    /// Throws `.missingProgram` if a program is missing that `parts` or all benchmarks need.
    init(folder: String, subject: Subject, parts: Set<Part>) throws(BenchmarkError) {
        func contender(_ label: String, _ file: String) -> Contender {
            Contender(label: label, program: "\(folder)/\(file)")
        }
        func built(_ label: String, _ file: String) -> Contender? {
            access("\(folder)/\(file)", X_OK) == 0 ? contender(label, file) : nil
        }
        guard let send = bench.program("dbus-send") else {
            throw BenchmarkError(.missingProgram, "dbus-send is not in PATH (Debian: dbus-bin)")
        }
        dbusSend = send
        libdbus = contender("libdbus", "peer-libdbus")
        staticLibdbus = built("static C", "peer-libdbus-static")
        otherLibraries = [("sd-bus", "peer-sdbus"), ("GDBus", "peer-gdbus")].map { ($0, built($0, $1)) }
        calls = contender("libdbus", "peer-calls")
        signOut = contender("libdbus", "peer-signout")
        notify = contender("ours", "peer-notify")
        notifyd = "\(folder)/notifyd"
        sharedDevice = SharedDevice(
            broker: contender("ours", "shared-device-broker"),
            administration: "\(folder)/shared-device",
            app: contender("ours", "peer-shared")
        )
        allocationCounter = "\(folder)/count-allocations.so"
        if subject == .swift {
            var peer = contender("ours", "peer-swift")
            peer.environment["PEER_DELIVERY"] = "default"
            swift = Swift(
                defaultDelivery: peer,
                staticLibdbus: contender("ours", "peer-swift-static"),
                notifyutil: "\(folder)/notifyutil"
            )
            peer.environment["PEER_DELIVERY"] = "immediate"
            self.subject = peer
        } else {
            swift = nil
            self.subject = contender(subject.rawValue, "peer-\(subject.rawValue)")
        }

        var needed = [libdbus.program, calls.program, signOut.program, self.subject.program, allocationCounter]
        if parts.contains(.notify) { needed += [notify.program, notifyd, "\(folder)/notifyutil"] }
        if parts.contains(.sharedDevice) {
            needed += [sharedDevice.broker.program, sharedDevice.administration, sharedDevice.app.program]
        }
        for path in needed where access(path, X_OK) != 0 {
            throw BenchmarkError(.missingProgram, "\(path) is not there: build with Benchmarks/run")
        }
    }
}
