import Foundation
import NotifyCenterTestKit

/// The files that `make install` gives a C program: the library, the headers and the file for pkg-config. They come
/// from the debug build, and are in a temporary directory.
struct Installation {
    /// Shared by all tests.
    static let shared = Result { try Installation() }

    private let prefix: TemporaryDirectory

    private init() throws {
        prefix = try TemporaryDirectory("notify-c-programs")
        let files = FileManager.default
        for folder in ["lib/pkgconfig", "include"] {
            try files.createDirectory(atPath: "\(prefix.path)/\(folder)", withIntermediateDirectories: true)
        }
        let links = [
            (library, ChildProcess.built("libdarwin-notify.so")),
            ("\(prefix.path)/include/darwin-notify", packagePath("Sources/Notify3/CNotify/include")),
        ]
        for (link, target) in links { try files.createSymbolicLink(atPath: link, withDestinationPath: target) }
        let template = try String(contentsOfFile: packagePath("Packaging/darwin-notify.pc.in"), encoding: .utf8)
        try template
            .replacing("@PREFIX@", with: prefix.path)
            .replacing("@LIBDIR@", with: "${prefix}/lib")
            .replacing("@INCLUDEDIR@", with: "${prefix}/include")
            .replacing("@VERSION@", with: "0")
            .write(toFile: "\(prefix.path)/lib/pkgconfig/darwin-notify.pc", atomically: true, encoding: .utf8)
    }

    var library: String { "\(prefix.path)/lib/libdarwin-notify.so" }

    /// The variables by which programs find the library when they are built and when they start.
    var environment: [String: String] {
        ["PKG_CONFIG_PATH": "\(prefix.path)/lib/pkgconfig", "LD_LIBRARY_PATH": "\(prefix.path)/lib"]
    }

    /// Builds one of the programs as its author would. Returns its path.
    func build(_ source: String) async throws -> String {
        let program = "\(prefix.path)/\(source)-program"
        try await run(Self.programs("build"), [Self.programs(source), program])
        return program
    }

    /// Runs a build script instead of the compiler. Returns the path of the program that it makes.
    func build(_ script: String, _ name: String) async throws -> String {
        let program = "\(prefix.path)/\(name)"
        try await run(script, [program])
        return program
    }

    /// Runs a program to its end, and shows its output if it failed.
    func run(_ program: String, _ arguments: [String] = [], on bus: PrivateBus? = nil) async throws {
        let variables = environment.merging(bus?.environment ?? [:]) { $1 }
        let process = try ChildProcess(program, arguments, environment: variables)
        let status = await process.exitStatus()
        guard status == 0 else {
            let output = process.lines.joined(separator: "\n")
            throw Failure(description: "\(program): \(status)\n\(output)\n\(process.errorText)")
        }
    }

    struct Failure: Error, CustomStringConvertible { let description: String }

    /// A file of the folder with the programs.
    static func programs(_ file: String) -> String { packagePath("Tests/Notify3/CProgramTests/Programs/\(file)") }
}
