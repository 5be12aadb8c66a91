import Basics
import NotifyCenterTestKit
import Testing

@Suite("How notify-center ends")
struct EndTests {
    @Test("wrong usage exits with 64 and does nothing")
    func usage() async throws {
        let bus = try await ProgramBus("notify-center")
        for arguments in [
            ["-x"], ["post"], ["watch"], ["post", "a", "b"], ["post", "a", "--object", "o"],
            ["watch", "a", "--object", "o"],
            ["post", "a", "--userinfo", "{}"], ["watch", "a", "--count", "0"], ["list", "--json", "--names"],
            ["post", "a", "--bus", "nowhere"],
        ] {
            let result = try await bus.run(arguments)
            #expect(result.status == 64 && result.lines.isEmpty && !result.errors.isEmpty, "\(arguments): \(result)")
        }
    }

    @Test("--help and --version write to standard output")
    func help() async throws {
        let bus = try await ProgramBus("notify-center")
        for arguments in [
            ["--help"], ["post", "--help"], ["watch", "--help"], ["monitor", "--help"], ["list", "--help"],
        ] {
            let result = try await bus.run(arguments)
            #expect(result.status == 0 && result.errors.isEmpty && result.lines.contains { $0.hasPrefix("USAGE: ") })
        }
        let version = try await bus.run("--version")
        #expect(version.status == 0 && version.lines == [ProjectVersion.line(of: "notify-center")])
    }

    @Test("a missing bus exits with 69, the address and the remedy")
    func noBus() async throws {
        let bus = try await ProgramBus("notify-center")
        for command in [
            ["post", "n"], ["post", "n", "--distributed"], ["watch", "n"], ["watch", "n", "--distributed"], ["monitor"],
            ["list"],
        ] {
            let result = try await bus.run(command + ["--bus", "unix:path=/nowhere/bus"])
            #expect(result.status == 69 && result.lines.isEmpty, "\(command): \(result)")
            for part in ["notify-center: ", "/nowhere/bus", "check that the bus runs"] {
                #expect(result.errors.contains(part), "\(command): \(result)")
            }
        }
    }

    @Test("another user's name exits with 77 and the reason")
    func notAuthorized() async throws {
        // Root may post any name, so the test runs as another user if root runs it.
        let result = try await ProgramBus("notify-center").shell(
            #"""
            as=; [ "$(id -u)" = 0 ] && as='setpriv --reuid 65534 --clear-groups'
            $as "$N" post user.uid.1.a; echo $?
            """#
        )
        #expect(result.lines == ["77"])
        #expect(result.errors.contains("could not post user.uid.1.a: the name belongs to another user"))
    }

    @Test("an argument that is not UTF-8 is refused")
    func notUTF8() async throws {
        let result = try await ProgramBus("notify-center").shell(#""$N" post $'a\xff'; echo $?"#)
        #expect(result.lines == ["64"])
        #expect(result.errors.contains("argument 2 is not UTF-8 text"))
    }

    @Test("a full disk or a missing standard output exits with 74 and the reason")
    func unwritable() async throws {
        let bus = try await ProgramBus("notify-center", hasNotifyd: true)
        for output in ["> /dev/full", ">&-"] {
            let result = try await bus.shell(#""$N" list \#(output); echo $?"#)
            #expect(result.lines == ["74"] && result.errors.contains("could not write the output"))
        }
    }

    @Test("SIGPIPE ends the program silently when the reader ends, before the next post")
    func closedPipe() async throws {
        let bus = try await ProgramBus("notify-center")
        let result = try await bus.shell(#""$N" monitor --ready 2> >(cat >&2) | true; echo "${PIPESTATUS[0]}""#)
        #expect(result.lines == ["141"])
        #expect(result.errors == "" || result.errors == "ready")
    }
}
