import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite("Unchanged programs for Apple's platforms")
struct PortedProgramTests {
    private let bus: PrivateBus
    private let directory: TemporaryDirectory

    init() throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory("notify-center-receiver")
    }

    // CF-D2, CF-A11, CF-T10
    @Test("Swift that imports CoreFoundation exchanges posts with other processes")
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

    // CF-A1, CF-A4, CF-D1, CF-D2, CF-R2, CF-T3, CF-T5
    @Test(
        "the example, and every common form in C and C++, build and receive posts",
        .disabled(if: isSanitized, "a plain program cannot load a library that needs the sanitizer")
    )
    func formsInC() async throws {
        try await install()
        let receiver = "\(directory.path)/receiver"
        let compiler = try ChildProcess(
            "\(Self.repository)/Examples/BroadcastReceiver/build",
            [receiver],
            environment: ["PKG_CONFIG_PATH": "\(prefix)/lib/pkgconfig"]
        )
        let status = await compiler.exitStatus()
        #expect(status == 0, "\(compiler.errorText)")
        let example = try ChildProcess(receiver, environment: bus.environment)
        try await example.line { $0 == "listening" }
        try DarwinNotifyCenter(bus: bus.bus).post("SHARED_MODE_CURRENT_ACCOUNT_CHANGED")
        try await example.line { $0 == "heard SHARED_MODE_CURRENT_ACCOUNT_CHANGED" }
        let source = "\(directory.path)/program.cpp"
        try """
        #include <CoreFoundation/CoreFoundation.h>
        static CFNotificationCenterRef center = CFNotificationCenterGetDistributedCenter();
        int main() { return center != nullptr && !_CFNotificationCenterIsSuspended(center) ? 0 : 1; }
        """.write(toFile: source, atomically: true, encoding: .utf8)
        let inCPlusPlus = try await run(source, builtBy: "++ -std=c++17")
        #expect(await inCPlusPlus.exitStatus() == 0)
        let inC = try await run("\(Self.folder)/Programs/forms.c", builtBy: " -std=c11")
        let lines = [
            "local settings 1", "block of names a", "block of names b", "darwin changed on the main thread",
            "any name of object till-3: order, total 12", "coalesce order", "end",
        ]
        #expect(await inC.exitStatus() == 0)
        #expect(inC.lines.sorted() == lines.sorted())
        #expect(inC.errorText == "")
    }

    private var prefix: String { "\(directory.path)/installed" }

    /// Installs the library of this build.
    private func install() async throws {
        let folder = URL(fileURLWithPath: Self.libraries)
        let installation = try ChildProcess(
            "\(Self.repository)/Packaging/install",
            ["corefoundation"],
            environment: [
                "prefix": prefix, "STATIC_SCRATCH": folder.deletingLastPathComponent().path,
                "CONFIGURATION": folder.lastPathComponent,
            ]
        )
        let status = await installation.exitStatus()
        try #require(status == 0, "\(installation.errorText)")
    }

    /// Builds a program of one file as in the porting guide, and starts it.
    ///
    /// - Parameter compiler: the text after the name of the compiler.
    private func run(_ source: String, builtBy compiler: String) async throws -> ChildProcess {
        let program = "\(directory.path)/program"
        let script = """
            package=cf-notification-center
            "$(pkg-config --variable=clang $package)"\(compiler) -Wall -Wextra -Werror $(pkg-config --cflags $package) "$0" \
                -o "$1" $(pkg-config --libs $package)
            """
        let build = try ChildProcess(
            "sh",
            ["-e", "-c", script, source, program],
            environment: ["PKG_CONFIG_PATH": "\(prefix)/lib/pkgconfig"]
        )
        let status = await build.exitStatus()
        try #require(status == 0, "\(build.errorText)")
        let environment = bus.environment.merging(["LD_LIBRARY_PATH": "\(prefix)/lib"]) { $1 }
        return try ChildProcess(program, environment: environment)
    }

    private static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().path
    private static let repository = URL(fileURLWithPath: folder).appendingPathComponent("../../..").standardized.path
    /// The directory of libCFNotificationCenter.so.
    private static var libraries: String { (ChildProcess.built("x") as NSString).deletingLastPathComponent }
}

/// Whether this process, and thus the library, was built for a sanitizer.
private var isSanitized: Bool { dlsym(nil, "__asan_init") != nil || dlsym(nil, "__tsan_init") != nil }
