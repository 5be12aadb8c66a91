import EmbeddedIdentity
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

import func NotifyCenterTestKit.onThread

@Suite("Password prompt at a terminal", .timeLimit(.minutes(5)))
struct TerminalPromptTests {
    private let directory: TemporaryDirectory
    private let terminal: PseudoTerminal

    init() throws {
        directory = try TemporaryDirectory()
        terminal = try PseudoTerminal()
    }

    private struct Ending: Sendable {
        let status: Int32
        let reason: Process.TerminationReason
        let screen: String
    }

    /// Runs `user add ada` at the terminal and `typing` on the same thread, then waits for the program to exit.
    private func addUser(
        _ typing: @escaping @Sendable (PseudoTerminal, pid_t) throws -> String
    ) async throws -> Ending {
        let (terminal, state) = (terminal, directory.state)
        return try await onThread {
            let process = Process()
            process.executableURL = URL(fileURLWithPath: Program.sharedDevice.path)
            process.arguments = ["user", "add", "ada", "--state", state]
            process.standardInput = terminal.terminal
            process.standardError = terminal.terminal
            process.standardOutput = FileHandle.nullDevice
            try process.run()
            let watchdog = Watchdog(process)
            defer { watchdog.cancel() }
            let screen = try typing(terminal, process.processIdentifier)
            process.waitUntilExit()
            return Ending(
                status: process.terminationStatus,
                reason: process.terminationReason,
                screen: screen + terminal.readRest()
            )
        }
    }

    private var hasUser: Bool {
        get throws {
            guard mode(of: directory.databaseFile) != nil else { return false }
            return try directory.users().user(named: "ada") != nil
        }
    }

    @Test("the password is requested twice without echo, which is restored afterwards")
    func asking() async throws {
        #expect(terminal.echoes)
        let ending = try await addUser { terminal, _ in
            var screen = try terminal.read(until: "Password for ada: ")
            #expect(!terminal.echoes)
            try terminal.type("correct horse\n")
            screen += try terminal.read(until: "The same again: ")
            #expect(!terminal.echoes)
            try terminal.type("correct horse\n")
            return screen
        }
        #expect(ending.status == 0 && !ending.screen.contains("horse"))
        #expect(terminal.echoes)
        #expect(try directory.users().isPassword("correct horse", of: "ada"))
    }

    @Test(
        "two different passwords, a short one or the end of input add no user",
        arguments: [
            (["correct horse\n", "correct house\n"], EX_DATAERR, ["the two passwords differ"]),
            // A short password is refused before it is repeated.
            (["horse 7\n"], EX_DATAERR, ["the password is too short", "8 characters or more"]),
            (["\u{4}"], EX_NOINPUT, []),
        ] as [([String], CInt, [String])]
    )
    func refused(answers: [String], status: CInt, words: [String]) async throws {
        let ending = try await addUser { terminal, _ in
            var screen = ""
            for (prompt, answer) in zip(["Password for ada: ", "The same again: "], answers) {
                screen += try terminal.read(until: prompt)
                try terminal.type(answer)
            }
            return screen
        }
        #expect(ending.status == status && words.allSatisfy { ending.screen.contains($0) }, "\(ending)")
        #expect(ending.screen.contains("The same again") == (answers.count == 2))
        #expect(try !hasUser)
        #expect(terminal.echoes)
    }

    @Test(
        "a signal at the prompt ends the program and restores the echo",
        arguments: [SIGINT, SIGTERM, SIGHUP]
    )
    func signal(_ signal: CInt) async throws {
        let ending = try await addUser { terminal, process in
            _ = try terminal.read(until: "Password for ada: ")
            #expect(!terminal.echoes)
            kill(process, signal)
            return ""
        }
        #expect(ending.reason == .uncaughtSignal && ending.status == signal)
        #expect(terminal.echoes)
        #expect(try !hasUser)
    }
}
