import DBus
import Glibc
import NotifyCenter
import SharedDevice

// An app that signs in a user at the device's own prompt and prints the result. The line `cancel` on standard input
// cancels the sign-in, and the app prints that it did.
// Arguments: the bus address, the state directory, and optionally the login hint, and `again` to ask a signed-in user again.

/// Not on the main actor, which reads standard input.
func signIn(_ arguments: [String]) -> Task<Void, Never> {
    Task.detached {
        let application = SharedDeviceApplication(
            identifier: "org.example.signing-in",
            bus: .address(arguments[1]),
            stateDirectory: arguments[2]
        )
        var result: String
        do {
            var parameters = InteractiveTokenParameters(
                scopes: ["orders.read"],
                loginHint: arguments.dropFirst(3).first
            )
            parameters.asksAgain = arguments.last == "again"
            let token = try await application.acquireToken(with: parameters)
            let isToken = !token.accessToken.isEmpty && token.scopes == ["orders.read"]
            result = "signed in \(token.account.username) \(isToken ? "with" : "without") a token"
        } catch {
            result = "error \((error as? SharedDeviceError)?.code.description ?? "\(error)")"
        }
        result += "\n"
        write(STDOUT_FILENO, result, result.utf8.count)
        // `exit` would wait for the lock of standard input, which is being read.
        _exit(0)
    }
}

guard CommandLine.arguments.count >= 3 else { fatalError("wrong arguments") }
let task = signIn(CommandLine.arguments)
// At a terminal, the input is for the prompt.
if isatty(STDIN_FILENO) == 0 {
    while let line = readLine() {
        guard line == "cancel" else { continue }
        task.cancel()
        let word = "cancelled\n"
        write(STDOUT_FILENO, word, word.utf8.count)
    }
}
await task.value
