import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite("Programs as people write them for Apple's platforms")
struct PortedProgramTests {
    private let bus: PrivateBus
    private let directory: TemporaryDirectory

    init() throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory("notify-center-receiver")
    }

    // CF-D2, CF-A11, CF-T10
    @Test("Swift that imports Foundation and CoreFoundation gets posts of other processes, and they get its posts")
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
        let program = "\(directory.path)/receiver"
        let compiler = try ChildProcess(
            "\(Self.repository)/Examples/BroadcastReceiver/build",
            [Self.libraries, program]
        )
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
        let source = "\(directory.path)/program.cpp"
        try """
        #include <CoreFoundationNotifications.h>
        static CFNotificationCenterRef center = CFNotificationCenterGetDistributedCenter();
        int main() { return center != nullptr && !_CFNotificationCenterIsSuspended(center) ? 0 : 1; }
        """.write(toFile: source, atomically: true, encoding: .utf8)
        let program = try ChildProcess(
            try await build(source, by: "clang++ -std=c++17"),
            environment: bus.environment
        )
        #expect(await program.exitStatus() == 0)
    }

    // CF-A1, CF-A4, CF-D1, CF-D2, CF-R2, CF-T5
    @Test(
        "each form in which projects write C compiles, and hears what it waits for",
        .disabled(if: isSanitized, "a plain program cannot load a library that needs the sanitizer")
    )
    func formsInC() async throws {
        let program = try ChildProcess(
            try await build("\(Self.folder)/Programs/forms.c", by: "clang -std=c11"),
            environment: bus.environment
        )
        let lines = [
            "local settings 1", "block of names a", "block of names b", "darwin changed on the main thread",
            "any name of object till-3: order, total 12", "coalesce order", "end",
        ]
        #expect(await program.exitStatus() == 0)
        #expect(program.lines.sorted() == lines.sorted())
        #expect(program.errorText == "")
    }

    /// Builds a program of one file as in the porting guide, and returns its path.
    private func build(_ source: String, by compiler: String) async throws -> String {
        let program = "\(directory.path)/program"
        let headers = "\(Self.repository)/Sources/Notifications/CCoreFoundationNotifications/include"
        let script = """
            swift=$(swift -print-target-info | sed -n 's/.*"runtimeResourcePath": "\\(.*\\)".*/\\1/p')
            "$swift/../../bin/"\(compiler) -Wall -Wextra -Werror -fblocks -isystem "$swift" -I"$1" "$0" -o "$3" \
                -L"$2" -lCFNotificationCenter -Wl,-rpath,"$2" -L"$swift/linux" -lFoundation -Wl,-rpath,"$swift/linux"
            """
        let build = try ChildProcess("sh", ["-e", "-c", script, source, headers, Self.libraries, program])
        let status = await build.exitStatus()
        try #require(status == 0, "\(build.errorText)")
        return program
    }

    private static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().path
    private static let repository = URL(fileURLWithPath: folder).appendingPathComponent("../../..").standardized.path
    /// The directory of libCFNotificationCenter.so.
    private static var libraries: String { (ChildProcess.built("x") as NSString).deletingLastPathComponent }
}

/// Whether this process, and with it the library, was built for a sanitizer.
private var isSanitized: Bool { dlsym(nil, "__asan_init") != nil || dlsym(nil, "__tsan_init") != nil }
