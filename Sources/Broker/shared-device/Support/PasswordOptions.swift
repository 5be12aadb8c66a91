import ArgumentParser
import Glibc
import SharedDeviceBroker

/// Where a new password comes from.
struct PasswordOptions: ParsableArguments {
    @Flag(name: .customLong("password-stdin"), help: "Read the password from the first line of standard input.")
    var fromStandardInput = false

    /// Makes ready to read it. To be called before anything starts a thread; see `TerminalPrompt`.
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
