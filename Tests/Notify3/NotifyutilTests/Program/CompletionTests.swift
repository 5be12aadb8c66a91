import NotifyCenterTestKit
import Testing

@Suite("Completions")
struct CompletionTests {
    private static func isInstalled(_ shell: String) -> Bool { (try? ChildProcess(shell, ["-c", ":"])) != nil }

    /// What bash would offer for the last of these words.
    private func bash(_ words: [String], on bus: ProgramBus) async throws -> [String] {
        let quoted = words.map { "'\($0)'" }.joined(separator: " ")
        let result = try await bus.shell(
            """
            PATH=$(dirname "$N"):$PATH
            source '\(Repository.path("Completions/notifyutil.bash"))'
            COMP_WORDS=(notifyutil \(quoted)) COMP_CWORD=\(words.count)
            _notifyutil && printf '%s\\n' "${COMPREPLY[@]}"
            """
        )
        #expect(result.errors == "")
        return result.lines.filter { !$0.isEmpty }
    }

    @Test("bash knows the function for the program")
    func isRegistered() async throws {
        let result = try await ProgramBus().shell(
            "source '\(Repository.path("Completions/notifyutil.bash"))'; complete -p notifyutil"
        )
        #expect(result.lines == ["complete -F _notifyutil notifyutil"])
    }

    @Test(
        "options and what follows them",
        arguments: [
            (["--mo"], ["--monitor"]), (["-p", "x", "-pl"], ["-plain"]), (["-signal", ""], ["1", "2", "10", "12"]),
            (["-z", ""], []), (["-s", "n", ""], []), (["--address", ""], ["unix:path="]),
            (["--address", "u"], ["unix:path="]),
        ]
    )
    func options(words: [String], offered: [String]) async throws {
        let replies = try await bash(words, on: ProgramBus())
        #expect(Array(replies.prefix(max(1, offered.count))) == offered)
    }

    @Test("names are the registered ones; without a bus or notifyd there are none, and no message")
    func names() async throws {
        let bus = try await ProgramBus(hasNotifyd: true)
        let watcher = try await bus.startReady(
            "-w",
            "com.example.one",
            "-w",
            "com.example:two",
            "-w",
            "$(odd) \"name\""
        )
        for name in ["com.example.one", "com.example:two"] { try await bus.waitUntilListed(name) }
        for option in ["-p", "-w", "-3", "-g", "-s", "--list", "--monitor"] {
            let replies = try await bash([option, "com.e"], on: bus)
            #expect(replies == ["com.example.one", "com.example:two"], "\(option)")
        }
        // The separators of words in readline.
        let split = try await bash(["-p", "com.example", ":", "t"], on: bus)
        #expect(split == ["two"])
        let lost = try await bash(["--address", "unix", ":", "path", "=", "/nowhere", "-p", ""], on: bus)
        #expect(lost.isEmpty)
        let bare = try await ProgramBus()
        let none = try await bash(["-p", ""], on: bare)
        #expect(none.isEmpty)
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
                fish --no-config -c "source '\(Repository.path("Completions/notifyutil.fish"))'; complete -C 'notifyutil \(line)'"
                """
            )
            return result.lines.map { String($0.prefix { $0 != "\t" }) }
        }
        #expect(try await replies("-p com.e") == ["com.example.one"])
        #expect(try await replies("--monitor x com.e") == ["com.example.one"])
        #expect(try await replies("--mon") == ["--monitor"])
        withExtendedLifetime(watcher) {}
    }

    @Test("zsh loads the file", .enabled(if: isInstalled("zsh")))
    func zsh() async throws {
        let result = try await ProgramBus().shell("zsh -n '\(Repository.path("Completions/_notifyutil"))'; echo $?")
        #expect(result.lines == ["0"])
        #expect(result.errors == "")
    }
}
