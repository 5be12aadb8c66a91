import Glibc
import SharedDeviceBroker

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
        // What was typed before the question is not an answer to it.
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
        // Still here: whoever started this program has it ignore the signal.
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
