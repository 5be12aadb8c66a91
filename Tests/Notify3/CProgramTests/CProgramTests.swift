import Glibc
import NotifyCenterTestKit
import NotifydProtocol
import Testing

/// Each program says what it expects, by which rule of notify(3), and exits with 1 if something differs.
@Suite(.disabled(if: isSanitized, "a plain program cannot load a library that needs the sanitizer"))
struct CProgramTests {
    private let installation: Installation

    init() throws { installation = try Installation.shared.get() }

    @Test(arguments: [
        "status_codes.c", "checks.c", "descriptors.c", "signals.c", "names.c", "suspension.c", "state.c", "forks.c",
        "handler_forks.c", "files.c", "crowds.c", "functions.c", "cplusplus.cpp", "blocks.c", "blocks_lifetime.cpp",
    ])
    func finds(_ source: String) async throws {
        let program = try await installation.build(source)
        try await installation.run(program, on: try busWithNotifyd())
    }

    @Test func headersAreWarningFreeInEachLanguageByThemselves() async throws {
        try await installation.run(Installation.programs("check-headers"))
    }

    @Test func pythonDrivesTheLibraryByItsForeignFunctions() async throws {
        let arguments = [Installation.programs("ctypes_client.py"), installation.library]
        try await installation.run("python3", arguments, on: try busWithNotifyd())
    }

    @Test(arguments: ["descriptor", "port", "signal", "dispatch", "check"])
    func notifyToolHearsPosts(_ way: String) async throws {
        let tool = try await installation.build(Installation.package("Examples/NotifyTool/build"), "notify-tool-\(way)")
        let bus = try busWithNotifyd()
        let variables = installation.environment.merging(bus.environment) { $1 }
        let listener = try ChildProcess(tool, [way, "news", "weather"], environment: variables)
        try await listener.line { $0 == "listening" }
        // The first call starts notifyd, which asks all processes for their registrations; it keeps the value for those that it knows.
        for value in ["1", "15"] { try await installation.run(tool, ["state", "weather", value], on: bus) }
        try await installation.run(tool, ["post", "news"], on: bus)
        try await listener.line { $0 == "news" }
        try await installation.run(tool, ["post", "weather"], on: bus)
        try await listener.line { $0 == "weather 15" }
        #expect(listener.lines.count == 3)
    }

    private func busWithNotifyd() throws -> PrivateBus {
        try PrivateBus(.init(services: [NotifydProtocol.busName: ChildProcess.built("notifyd")]))
    }
}

private var isSanitized: Bool { dlsym(nil, "__asan_init") != nil || dlsym(nil, "__tsan_init") != nil }
