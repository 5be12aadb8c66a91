import Glibc
import NotifyCenter
import NotifyCenterTestKit
import Testing

/// Runs C programs. Each checks rules of notify(3), and exits with 1 if an expectation fails.
@Suite(.disabled(if: isSanitized, "a plain program cannot load a library that needs the sanitizer"))
struct CProgramTests {
    private let installation: Installation
    /// A bus that starts notifyd at the first call, as on an installed system.
    private let bus: PrivateBus
    /// dbus-broker starts services through systemd, which a test does not have. There notifyd runs from the beginning.
    private let notifyd: ChildProcess?

    init() async throws {
        installation = try Installation.shared.get()
        let bus = try PrivateBus(.init(services: [NotifydProtocol.busName: ChildProcess.built("notifyd")]))
        notifyd = try await PrivateBus.Daemon.chosen == .broker ? startNotifyd(on: bus) : nil
        self.bus = bus
    }

    // CF-W5, CF-W6, CF-W7, CF-W9, CF-W11
    @Test(arguments: [
        "status_codes.c", "checks.c", "descriptors.c", "signals.c", "names.c", "suspension.c", "state.c", "forks.c",
        "handlers.c", "files.c", "functions.c", "cplusplus.cpp", "blocks.c", "blocks_lifetime.cpp",
    ])
    func finds(_ source: String) async throws { try await installation.run(installation.build(source), on: bus) }

    @Test func postsArriveEvenIfMainReturnsAtOnce() async throws {
        let program = try await installation.build("ends.c")
        let center = DarwinNotifyCenter(bus: bus.bus)
        let observation = try await center.observe("org.example.ends", delivery: .immediate) { _ in }
        var promised: UInt64 = 0
        for _ in 0..<20 {
            let start = ContinuousClock.now
            try await installation.run(program, ["org.example.ends", "200"], on: bus)
            // A process that ends waits two seconds for the bus. On a machine that stalls longer, this wait is in vain.
            if ContinuousClock.now - start < .seconds(2) { promised += 200 }
        }
        #expect(promised >= 2000)
        try await eventually("all of \(promised) arrive, and not \(observation.counts.delivered)") {
            observation.counts.delivered >= promised
        }
        #expect(observation.counts.delivered <= 4000)
    }

    @Test func headersAreWarningFreeInEachLanguageByThemselves() async throws {
        try await installation.run(Installation.programs("check-headers"))
    }

    @Test func pythonDrivesTheLibraryByItsForeignFunctions() async throws {
        let arguments = [Installation.programs("ctypes_client.py"), installation.library]
        try await installation.run("python3", arguments, on: bus)
    }

    @Test func notifyToolHearsPosts() async throws {
        let tool = try await installation.build(packagePath("Examples/NotifyTool/build"), "notify-tool")
        let variables = installation.environment.merging(bus.environment) { $1 }
        let listeners = try ["descriptor", "port", "signal", "dispatch", "check"].map {
            try ChildProcess(tool, [$0, "news", "weather"], environment: variables)
        }
        for listener in listeners { try await listener.line { $0 == "listening" } }
        // The first call starts notifyd, which asks all processes for their registrations. notifyd keeps the value if
        // a process reports the name.
        for value in ["1", "15"] { try await installation.run(tool, ["state", "weather", value], on: bus) }
        try await installation.run(tool, ["post", "news"], on: bus)
        for listener in listeners { try await listener.line { $0 == "news" } }
        try await installation.run(tool, ["post", "weather"], on: bus)
        for listener in listeners { try await listener.line { $0 == "weather 15" } }
        #expect(listeners.map(\.lines.count) == [3, 3, 3, 3, 3])
    }
}

private var isSanitized: Bool { dlsym(nil, "__asan_init") != nil || dlsym(nil, "__tsan_init") != nil }
