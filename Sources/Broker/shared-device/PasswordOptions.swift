import ArgumentParser
import CLinux
import CommandParts
import EmbeddedIdentity
import Glibc
import Identity

struct PasswordOptions: ParsableArguments {
    @Flag(name: .customLong("password-stdin"), help: "Read the password from the first line of standard input.")
    var fromStandardInput = false

    /// Opens the source of the password. Call it before anything starts a thread; see `TerminalPrompt`.
    func open() throws -> PasswordInput { try PasswordInput(fromStandardInput, option: "--password-stdin") }
}

/// The options of a command that gives a user a badge or a PIN, or takes it away.
struct PersonalOptions: ParsableArguments {
    @Flag(name: .customLong("stdin"), help: "Read it from the first line of standard input.")
    var fromStandardInput = false

    @Flag(help: "Take it away from the user.")
    var remove = false

    func validate() throws {
        if remove, fromStandardInput { throw ValidationError("use --stdin or --remove, and not both") }
    }

    /// Opens the source of the secret, as ``PasswordOptions/open()`` does; `nil` with ``remove``.
    func open() throws -> PasswordInput? { remove ? nil : try PasswordInput(fromStandardInput, option: "--stdin") }
}

/// A source that a new password can be read from, once.
struct PasswordInput: ~Copyable {
    /// `nil` for standard input.
    private let prompt: TerminalPrompt?
    /// The option of the command for standard input.
    private let option: String

    init(_ isStandardInput: Bool, option: String) throws {
        guard isStandardInput || isatty(STDIN_FILENO) != 0 else {
            throw CommandFailure(EX_USAGE, "there is no terminal to ask at; give the secret with \(option)")
        }
        prompt = isStandardInput ? nil : try Self.reported(option) { try TerminalPrompt() }
        self.option = option
    }

    /// Asks once: a wrong password does no harm.
    consuming func readPassword(of name: String) throws -> Secret { try read("Password for \(name): ") }

    consuming func readNewPassword(of name: String) throws -> Secret {
        let least = UserDirectory.minimumPasswordLength
        return try read("Password for \(name): ", twiceFor: "passwords") { password in
            guard password.codePointCount < least else { return }
            throw CommandFailure(
                EX_DATAERR,
                "the password is too short, and nothing was changed; choose one of \(least) characters or more"
            )
        }
    }

    consuming func readNewPIN(of name: String) throws -> Secret {
        try read("PIN for \(name) (4 to 12 digits): ", twiceFor: "PINs") { pin in
            if !pin.isPIN { throw UserDirectoryError.invalidPIN }
        }
    }

    /// Asks once: a reader makes no mistakes.
    consuming func readBadge(of name: String) throws -> Secret {
        try read("Hold the badge for \(name) to the reader: ")
    }

    /// - Parameters:
    ///   - kind: What a person has to type twice; `nil` asks once.
    ///   - check: Throws if the directory would refuse the secret, before the person types it again.
    private consuming func read(
        _ question: String,
        twiceFor kind: String? = nil,
        check: (Secret) throws -> Void = { _ in }
    ) throws -> Secret {
        guard let prompt else {
            if let secret = try SecretLine.read(from: STDIN_FILENO, before: { true }) { return secret }
            throw CommandFailure(EX_NOINPUT, "there is nothing on standard input, and nothing was changed")
        }
        let secret = try Self.reported(option) { try prompt.ask(question) }
        guard let kind else { return secret }
        try check(secret)
        guard try Self.reported(option, { try prompt.ask("The same again: ") }).isEqual(to: secret) else {
            throw CommandFailure(EX_DATAERR, "the two \(kind) differ, and nothing was changed; try again")
        }
        return secret
    }

    /// Adds the remedy to a failure of the terminal.
    private static func reported<Value>(_ option: String, _ body: () throws -> Value) throws -> Value {
        do {
            return try body()
        } catch let error as TerminalFailure {
            throw CommandFailure(EX_IOERR, "\(error); give the secret with \(option)")
        }
    }
}

/// Asks at the terminal for a secret, without echo.
///
/// The terminal echoes again even if a signal ends the program: signals are blocked, and polled while waiting. Create
/// a prompt before anything starts threads, because the block applies to this thread and to later ones.
private final class TerminalPrompt {
    private let terminal: QuietTerminal
    private var caught = sigset_t()
    private var blockedBefore = sigset_t()

    init() throws(TerminalFailure) {
        terminal = try QuietTerminal(STDIN_FILENO)
        sigemptyset(&caught)
        // SIGTSTP, too: after a stop, the shell's own prompt would not echo.
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP] { sigaddset(&caught, signal) }
        pthread_sigmask(SIG_BLOCK, &caught, &blockedBefore)
    }

    deinit { pthread_sigmask(SIG_SETMASK, &blockedBefore, nil) }

    /// Writes `question` to standard error and reads the response without echo.
    func ask(_ question: String) throws -> Secret {
        defer { terminal.restore() }
        try terminal.silence()
        try QuietTerminal.write(question, to: STDERR_FILENO)
        if let answer = try SecretLine.read(from: STDIN_FILENO, before: waitForInput) { return answer }
        throw CommandFailure(EX_NOINPUT, "nothing was typed, and nothing was changed")
    }

    /// Waits for the terminal. A signal that arrives first ends the program as it would have without the prompt.
    private func waitForInput() throws(TerminalFailure) -> Bool {
        while true {
            var input = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
            // Signals are polled every 50 ms, a delay that a person does not notice.
            let ready = poll(&input, 1, 50)
            guard ready >= 0 || errno == EINTR else { throw TerminalFailure("wait for input") }
            dieOfSignal()
            if ready > 0 { return true }
        }
    }

    private func dieOfSignal() {
        var noTime = timespec()
        let signal = sigtimedwait(&caught, nil, &noTime)
        guard signal > 0, signal != SIGTSTP else { return }
        terminal.restore()
        // The process still runs after this if its parent made it ignore the signal.
        raiseBlocked(signal)
    }
}

/// Delivers to this thread a signal that the thread blocks.
func raiseBlocked(_ signal: Int32) {
    var one = sigset_t()
    sigemptyset(&one)
    sigaddset(&one, signal)
    raise(signal)
    pthread_sigmask(SIG_UNBLOCK, &one, nil)
    pthread_sigmask(SIG_BLOCK, &one, nil)
}
