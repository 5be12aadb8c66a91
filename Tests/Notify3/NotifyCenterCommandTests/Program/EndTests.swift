import Basics
import NotifyCenterTestKit
import Testing

@Suite("How notify-center ends")
struct EndTests {
    @Test("wrong usage exits with 64; a missing bus with 69, the address and the remedy")
    func failures() async throws {
        let bus = try await ProgramBus("notify-center")
        for arguments in [
            ["-x"], ["post"], ["watch"], ["post", "a", "b"], ["post", "a", "--object", "o"],
            ["watch", "a", "--object", "o"], ["post", "a", "--userinfo", "{}"], ["watch", "a", "--count", "0"],
            ["list", "--json", "--names"], ["post", "a", "--bus", "nowhere"],
        ] {
            let result = try await bus.run(arguments)
            #expect(result.status == 64 && result.lines.isEmpty && !result.errors.isEmpty, "\(arguments): \(result)")
        }
        for command in [
            ["post", "n"], ["post", "n", "--distributed"], ["watch", "n"], ["watch", "n", "--distributed"], ["monitor"],
            ["list"],
        ] {
            let result = try await bus.run(command + ["--bus", "unix:path=/nowhere/bus"])
            #expect(result.status == 69 && result.lines.isEmpty, "\(command): \(result)")
            let parts = ["notify-center: ", "/nowhere/bus", "check that the bus runs"]
            #expect(parts.allSatisfy { result.errors.contains($0) }, "\(command): \(result)")
        }
    }

    @Test("--help and --version write to standard output")
    func help() async throws {
        let bus = try await ProgramBus("notify-center")
        for command in [[], ["post"], ["watch"], ["monitor"], ["list"]] {
            let result = try await bus.run(command + ["--help"])
            #expect(result.status == 0 && result.errors.isEmpty && result.lines.contains { $0.hasPrefix("USAGE: ") })
        }
        let version = try await bus.run("--version")
        #expect(version.status == 0 && version.lines == [ProjectVersion.line(of: "notify-center")])
    }

    @Test("unwritable output exits with 74 and the reason; SIGPIPE ends it silently")
    func unwritable() async throws {
        let bus = try await ProgramBus("notify-center", hasNotifyd: true)
        for output in ["> /dev/full", ">&-"] {
            let result = try await bus.shell(#""$N" list \#(output); echo $?"#)
            #expect(result.lines == ["74"] && result.errors.contains("could not write the output"))
        }
        let result = try await bus.shell(#""$N" monitor --ready 2> >(cat >&2) | true; echo "${PIPESTATUS[0]}""#)
        #expect(result.lines == ["141"])
        #expect(result.errors == "" || result.errors == "ready")
    }
}
