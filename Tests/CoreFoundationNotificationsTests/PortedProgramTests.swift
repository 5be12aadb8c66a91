import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite("Programs as they are written for Apple's platforms")
struct PortedProgramTests {
    private let bus: PrivateBus
    private let directory: TemporaryDirectory

    init() throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory("notify-center-receiver")
    }

    // CF-D2, CF-A11, CF-T10
    @Test("Swift that imports Foundation and CoreFoundation hears other processes, and is heard")
    func unmodified() async throws {
        let program = ChildProcess.built("unmodified-app")
        let listener = try ChildProcess(program, ["news"], environment: bus.environment)
        try await listener.line { $0 == "listening" }
        let poster = try ChildProcess(program, ["-", "news"], environment: bus.environment)
        #expect(await poster.exitStatus() == 0)
        #expect(try await listener.line { $0.hasPrefix("heard") } == "heard news on the main thread")
        try DarwinNotifyCenter(bus: bus.bus).post("news")
        try await eventually("it hears the next") { listener.lines.count == 3 }
    }

    // CF-D2, CF-A1
    @Test(
        "plain C, built as the Makefile does it, hears Swift",
        .disabled(if: isSanitized, "a plain program cannot load a library that needs the sanitizer")
    )
    func plainC() async throws {
        let sources = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../../Examples/BroadcastReceiver/build").standardized.path
        let libraries = (ChildProcess.built("x") as NSString).deletingLastPathComponent
        let program = "\(directory.path)/receiver"
        let compiler = try ChildProcess(sources, [libraries, program])
        let status = await compiler.exitStatus()
        #expect(status == 0, "\(compiler.errorText)")
        let receiver = try ChildProcess(program, environment: bus.environment)
        try await receiver.line { $0 == "listening" }
        try DarwinNotifyCenter(bus: bus.bus).post(.sharedModeCurrentAccountChanged)
        #expect(
            try await receiver.line { $0.hasPrefix("heard") } == "heard SHARED_MODE_CURRENT_ACCOUNT_CHANGED"
        )
    }
}

/// Whether this process, and with it the library, was built for a sanitizer.
private var isSanitized: Bool { dlsym(nil, "__asan_init") != nil || dlsym(nil, "__tsan_init") != nil }
