import Glibc
import NotifyCenterTestKit
import NotifydProtocol
import Testing

/// Each program says what it expects and which rule of notify(3) that is, and exits with 1 where it finds otherwise.
@Suite(.disabled(if: isSanitized, "a plain program cannot load a library that needs the sanitizer"))
struct CProgramTests {
    private let installation: Installation

    init() throws { installation = try Installation.shared.get() }

    @Test(arguments: [
        "status_codes.c", "checks.c", "descriptors.c", "signals.c", "names.c", "suspension.c", "state.c", "forks.c",
        "files.c", "crowds.c", "cplusplus.cpp", "blocks.c", "blocks_lifetime.cpp",
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

    private func busWithNotifyd() throws -> PrivateBus {
        try PrivateBus(.init(services: [NotifydProtocol.busName: ChildProcess.built("notifyd")]))
    }
}

private var isSanitized: Bool { dlsym(nil, "__asan_init") != nil || dlsym(nil, "__tsan_init") != nil }
