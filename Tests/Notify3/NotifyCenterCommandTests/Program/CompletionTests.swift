import DBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite("Completions of both commands")
struct CompletionTests {
    private static func isInstalled(_ shell: String) -> Bool { (try? ChildProcess(shell, ["-c", ":"])) != nil }

    private func script(_ name: String) -> String { packagePath("Packaging/notifyutil-completions/\(name)") }

    /// Returns bash's completions for the last of these words.
    private func bash(_ words: [String], on bus: ProgramBus) async throws -> [String] {
        let quoted = words.map { "'\($0)'" }.joined(separator: " ")
        let result = try await bus.shell(
            """
            PATH=$(dirname "$N"):$PATH
            source '\(script("notifyutil.bash"))'
            COMP_WORDS=(notifyutil \(quoted)) COMP_CWORD=\(words.count)
            _notifyutil && printf '%s\\n' "${COMPREPLY[@]}"
            """
        )
        #expect(result.errors == "")
        return result.lines.filter { !$0.isEmpty }
    }

    @Test("bash has a completion function, which offers options and their values")
    func options() async throws {
        let bus = try await ProgramBus()
        let registered = try await bus.shell("source '\(script("notifyutil.bash"))'; complete -p notifyutil")
        #expect(registered.lines == ["complete -F _notifyutil notifyutil"])
        let offers: [(words: [String], offered: [String])] = [
            (["--sy"], ["--system"]), (["-p", "x", "-pl"], ["-plain"]), (["-signal", ""], ["1", "2", "10", "12"]),
            (["-z", ""], []), (["-s", "n", ""], []), (["--address", ""], ["unix:path="]),
            (["--address", "u"], ["unix:path="]),
        ]
        for (words, offered) in offers {
            let replies = try await bash(words, on: bus)
            #expect(Array(replies.prefix(max(1, offered.count))) == offered)
        }
    }

    @Test("bash offers the registered names, and without a bus or notifyd none")
    func names() async throws {
        let bus = try await ProgramBus(hasNotifyd: true)
        let names = ["com.example.one", "com.example:two"]
        let watcher = try await bus.startReady("-w", names[0], "-w", names[1], "-w", "$(odd) \"name\"")
        for name in names { try await bus.waitUntilListed(name) }
        for option in ["-p", "-w", "-3", "-g", "-s"] {
            // The completion waits at most one second for notifyd, so after a slow response the test tries again.
            try await eventually("\(option)") { try await bash([option, "com.e"], on: bus) == names }
        }
        // readline separates words at these characters.
        try await eventually { try await bash(["-p", "com.example", ":", "t"], on: bus) == ["two"] }
        #expect(try await bash(["--address", "unix", ":", "path", "=", "/nowhere", "-p", ""], on: bus) == [])
        #expect(try await bash(["-p", ""], on: ProgramBus()) == [])
        withExtendedLifetime(watcher) {}
    }

    @Test("fish offers names and options", .enabled(if: isInstalled("fish")))
    func fish() async throws {
        let bus = try await ProgramBus(hasNotifyd: true)
        let watcher = try await bus.startReady("-w", "com.example.one")
        try await bus.waitUntilListed("com.example.one")
        func replies(_ line: String) async throws -> [String] {
            let result = try await bus.shell(
                """
                PATH=$(dirname "$N"):$PATH HOME=$(mktemp -d)
                fish --no-config -c "source '\(script("notifyutil.fish"))'; complete -C 'notifyutil \(line)'"
                """
            )
            return result.lines.map { String($0.prefix { $0 != "\t" }) }
        }
        try await eventually { try await replies("-p com.e") == ["com.example.one"] }
        #expect(try await replies("--sys") == ["--system"])
        withExtendedLifetime(watcher) {}
    }

    // MARK: notify-center, with the scripts of swift-argument-parser

    /// Returns bash's completions for the last of these words.
    private func generated(_ words: [String], on bus: ProgramBus) async throws -> [String] {
        let quoted = (["notify-center"] + words).map { "'\($0)'" }.joined(separator: " ")
        let result = try await bus.shell(
            """
            PATH=$(dirname "$N"):$PATH
            source <("$N" --generate-completion-script bash)
            COMP_WORDS=(\(quoted)) COMP_CWORD=\(words.count) COMP_LINE="${COMP_WORDS[*]}"
            COMP_POINT=${#COMP_LINE}
            "$(complete -p notify-center | sed 's/.*-F \\([^ ]*\\).*/\\1/')" && printf '%s\\n' "${COMPREPLY[@]}"
            """
        )
        #expect(result.errors == "")
        return result.lines.map { $0.trimmingCharacters(in: .whitespaces) }.filter { !$0.isEmpty }
    }

    @Test("the scripts of both commands are valid in each shell", arguments: ["bash", "zsh", "fish"])
    func scripts(shell: String) async throws {
        let bus = try await ProgramBus("notify-center")
        let made = try await bus.run("--generate-completion-script", shell)
        #expect(made.status == 0 && made.lines.count > 10)
        guard Self.isInstalled(shell) else { return }
        let checked = try await bus.shell(#""$N" --generate-completion-script \#(shell) | \#(shell) -n; echo $?"#)
        #expect(checked.lines == ["0"] && checked.errors == "")
        guard shell == "zsh" else { return }
        let loaded = try await bus.shell("zsh -n '\(script("_notifyutil"))'; echo $?")
        #expect(loaded.lines == ["0"] && loaded.errors == "")
    }

    @Test("bash offers the registered names of the bus on the command line")
    func registeredNames() async throws {
        let bus = try await ProgramBus("notify-center", hasNotifyd: true)
        let watcher = try await bus.with("notifyutil").startReady("-w", "com.example.one", "-w", "$(odd) name")
        try await bus.waitUntilListed("com.example.one")
        for command in ["post", "watch", "monitor", "list"] {
            try await eventually("\(command)") {
                try await generated([command, "com.e"], on: bus) == ["com.example.one"]
            }
        }
        #expect(try await generated(["watch", "--bus", "unix:path=/nowhere", "com.e"], on: bus) == [])
        #expect(try await generated([""], on: bus).contains("monitor"))
        withExtendedLifetime(watcher) {}
    }

    // dbus-broker starts services through systemd, which a private bus does not have.
    @Test(
        "TAB starts no service",
        .enabled(if: ProcessInfo.processInfo.environment["NOTIFY_CENTER_TEST_BUS"] != "dbus-broker")
    )
    func startsNothing() async throws {
        let bus = try PrivateBus(.init(services: [NotifydProtocol.busName: ChildProcess.built("notifyd")]))
        let connection = try DBusConnection.open(bus.bus)
        let programs = ProgramBus("notifyutil", on: bus)
        #expect(try await bash(["-p", "com.e"], on: programs) == [])
        #expect(try await generated(["watch", "com.e"], on: programs.with("notify-center")) == [])
        #expect(try await connection.owner(of: NotifydProtocol.busName) == nil)
        // The same request starts it if that is allowed.
        #expect(try await programs.with("notify-center").run("list").status == 0)
        #expect(try await connection.owner(of: NotifydProtocol.busName) != nil)
    }
}
