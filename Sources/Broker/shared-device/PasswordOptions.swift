import ArgumentParser
import CLinux
import EmbeddedIdentity
import Glibc
import Identity
import SharedDeviceBroker

/// Where a new password comes from.
struct PasswordOptions: ParsableArguments {
    @Flag(name: .customLong("password-stdin"), help: "Read the password from the first line of standard input.")
    var fromStandardInput = false

    /// Opens the source of the password. Call it before anything starts a thread; see `TerminalPrompt`.
    func open() throws -> PasswordInput {
        if fromStandardInput { return .standardInput }
        guard isatty(STDIN_FILENO) != 0 else {
            throw CommandFailure(
                status: EX_USAGE,
                description: "there is no terminal to ask for a password at; give it with --password-stdin"
            )
        }
        return .terminal(try TerminalPrompt())
    }
}

/// A place that a new password can be read from, once.
enum PasswordInput: ~Copyable {
    case standardInput
    case terminal(TerminalPrompt)

    /// Asks once: a wrong one does no harm.
    consuming func readPassword(of name: String) throws -> Secret {
        switch consume self {
        case .standardInput: try Self.fromStandardInput()
        case .terminal(let prompt): try prompt.ask("Password for \(name): ")
        }
    }

    consuming func readNewPassword(of name: String) throws -> Secret {
        switch consume self {
        case .standardInput:
            return try Self.fromStandardInput()
        case .terminal(let prompt):
            let password = try prompt.ask("Password for \(name): ")
            // The directory refuses it too, but only after it was typed twice.
            let least = UserDirectory.minimumPasswordLength
            guard password.codePointCount >= least else {
                throw CommandFailure(
                    status: EX_DATAERR,
                    description: "the password is too short, and nothing was changed; choose one of \(least) "
                        + "characters or more"
                )
            }
            guard try prompt.ask("The same again: ").isEqual(to: password) else {
                throw CommandFailure(
                    status: EX_DATAERR,
                    description: "the two passwords differ, and nothing was changed; try again"
                )
            }
            return password
        }
    }

    private static func fromStandardInput() throws -> Secret {
        guard let password = try SecretLine.read(from: STDIN_FILENO, before: { true }) else {
            throw CommandFailure(status: EX_NOINPUT, description: "there is no password on standard input")
        }
        return password
    }
}

/// Reads a line that no other memory than a `Secret` is to keep.
enum SecretLine {
    /// More than any password may have; what is longer is cut, and refused for its length later.
    private static let maximumLength = 4096

    /// The bytes up to the end of the line, without it; `nil` where the input ends before any.
    ///
    /// - Parameter before: Called before each byte is waited for; where it returns `false`, reading ends with `nil`.
    static func read(from descriptor: CInt, before: () throws -> Bool) throws -> Secret? {
        let line = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: maximumLength)
        line.initialize(repeating: 0)
        defer {
            line.baseAddress.map { explicit_bzero($0, maximumLength) }
            line.deallocate()
        }
        var count = 0
        while true {
            guard try before() else { return nil }
            var byte: UInt8 = 0
            switch Glibc.read(descriptor, &byte, 1) {
            case 1 where byte == UInt8(ascii: "\n"):
                return Secret(bytes: line[..<count])
            case 1:
                if count < maximumLength {
                    line[count] = byte
                    count += 1
                }
            case 0:
                return count > 0 ? Secret(bytes: line[..<count]) : nil
            default:
                guard errno == EINTR else {
                    throw CommandFailure(
                        status: EX_IOERR,
                        description: "could not read the password: \(String(cString: strerror(errno)))"
                    )
                }
            }
        }
    }
}

/// Asks at the terminal for what must not be seen on it.
///
/// Whatever ends the program meanwhile, the terminal echoes again: the signals that would end it are blocked, and looked
/// for while the answer is waited for. That holds for signals to this thread and those started after it, so a prompt is
/// made before anything else starts threads.
final class TerminalPrompt {
    private let attributes: termios
    private var caught = sigset_t()
    private var blockedBefore = sigset_t()

    init() throws {
        var attributes = termios()
        guard tcgetattr(STDIN_FILENO, &attributes) == 0 else { throw Self.failure("read the terminal's settings") }
        self.attributes = attributes
        sigemptyset(&caught)
        // Not to be stopped either (TSTP): the shell's own prompt would not echo.
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP] { sigaddset(&caught, signal) }
        pthread_sigmask(SIG_BLOCK, &caught, &blockedBefore)
    }

    deinit {
        pthread_sigmask(SIG_SETMASK, &blockedBefore, nil)
    }

    /// Writes `question` to standard error and reads the answer, which is not echoed.
    func ask(_ question: String) throws -> Secret {
        var silent = attributes
        silent.c_lflag &= ~tcflag_t(ECHO)
        silent.c_lflag |= tcflag_t(ECHONL | ICANON)
        // Text that was typed before the question does not answer it.
        guard tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent) == 0 else { throw Self.failure("silence the terminal") }
        defer { restore() }
        let text = Array(question.utf8)
        guard write(STDERR_FILENO, text, text.count) == text.count else { throw Self.failure("ask for a password") }
        guard let answer = try SecretLine.read(from: STDIN_FILENO, before: waitForInput) else {
            throw CommandFailure(status: EX_NOINPUT, description: "no password was given, and nothing was changed")
        }
        return answer
    }

    /// Waits for the terminal; a signal that comes first ends the program as it would have without us.
    private func waitForInput() throws -> Bool {
        while true {
            var terminal = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
            // No descriptor for signals can be had in Swift, so they are looked for, in less time than a person notices.
            let ready = poll(&terminal, 1, 50)
            guard ready >= 0 || errno == EINTR else { throw Self.failure("wait for a password") }
            dieOfSignal()
            if ready > 0 { return true }
        }
    }

    private func dieOfSignal() {
        var noTime = timespec()
        let signal = sigtimedwait(&caught, nil, &noTime)
        guard signal > 0, signal != SIGTSTP else { return }
        restore()
        var fatal = sigset_t()
        sigemptyset(&fatal)
        sigaddset(&fatal, signal)
        raise(signal)
        pthread_sigmask(SIG_UNBLOCK, &fatal, nil)
        // The process still runs, because its parent made it ignore the signal.
        pthread_sigmask(SIG_BLOCK, &fatal, nil)
    }

    private func restore() {
        var attributes = attributes
        tcsetattr(STDIN_FILENO, TCSADRAIN, &attributes)
    }

    private static func failure(_ attempted: String) -> CommandFailure {
        CommandFailure(
            status: EX_IOERR,
            description: "could not \(attempted): \(String(cString: strerror(errno))); give the password with "
                + "--password-stdin"
        )
    }
}
