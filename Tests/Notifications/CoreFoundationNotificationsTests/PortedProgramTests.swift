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
            .appendingPathComponent("../../../Examples/BroadcastReceiver/build").standardized.path
        let program = "\(directory.path)/receiver"
        let compiler = try ChildProcess(sources, [Self.libraries, program])
        let status = await compiler.exitStatus()
        #expect(status == 0, "\(compiler.errorText)")
        let receiver = try ChildProcess(program, environment: bus.environment)
        try await receiver.line { $0 == "listening" }
        try DarwinNotifyCenter(bus: bus.bus).post("SHARED_MODE_CURRENT_ACCOUNT_CHANGED")
        #expect(
            try await receiver.line { $0.hasPrefix("heard") } == "heard SHARED_MODE_CURRENT_ACCOUNT_CHANGED"
        )
    }

    // CF-T3
    @Test(
        "C++ includes the header, and links what it declares",
        .disabled(if: isSanitized, "a plain program cannot load a library that needs the sanitizer")
    )
    func cPlusPlus() async throws {
        let headers = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../../../Sources/Notifications/CCoreFoundationNotifications/include").standardized.path
        try """
        #include <CoreFoundationNotifications.h>
        static CFNotificationCenterRef center = CFNotificationCenterGetDistributedCenter();
        int main() { return center != nullptr && !_CFNotificationCenterIsSuspended(center) ? 0 : 1; }
        """.write(toFile: "\(directory.path)/program.cpp", atomically: true, encoding: .utf8)
        let build = """
            swift=$(swift -print-target-info | sed -n 's/.*"runtimeResourcePath": "\\(.*\\)".*/\\1/p')
            "$swift/../../bin/clang++" -std=c++17 -Wall -Wextra -Werror -fblocks -isystem "$swift" -I"$1" \
                "$0/program.cpp" -o "$0/program" -L"$2" -lCFNotificationCenter -Wl,-rpath,"$2" \
                -L"$swift/linux" -lFoundation -Wl,-rpath,"$swift/linux"
            """
        let compiler = try ChildProcess("sh", ["-e", "-c", build, directory.path, headers, Self.libraries])
        let status = await compiler.exitStatus()
        #expect(status == 0, "\(compiler.errorText)")
        let program = try ChildProcess("\(directory.path)/program", environment: bus.environment)
        #expect(await program.exitStatus() == 0)
    }

    /// Where libCFNotificationCenter.so is.
    private static var libraries: String { (ChildProcess.built("x") as NSString).deletingLastPathComponent }
}

/// Whether this process, and with it the library, was built for a sanitizer.
private var isSanitized: Bool { dlsym(nil, "__asan_init") != nil || dlsym(nil, "__tsan_init") != nil }
