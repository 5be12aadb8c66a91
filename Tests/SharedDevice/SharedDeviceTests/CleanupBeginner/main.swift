// The app `arguments[1]` on the bus `arguments[2]` with its record in `arguments[3]`: begins each cleanup that it owes, and never ends it.
// Writes `following` once it has heard who is signed in.
import Glibc
import NotifyCenter
import SharedDevice

let application = SharedDeviceApplication(
    identifier: CommandLine.arguments[1],
    bus: Bus(name: CommandLine.arguments[2]),
    stateDirectory: CommandLine.arguments[3]
)
var hasSaid = false
for await change in application.accountChanges {
    if !hasSaid {
        let line = Array("following\n".utf8)
        guard write(STDOUT_FILENO, line, line.count) == line.count else { exit(1) }
        hasSaid = true
    }
    if !change.previousAccounts.isEmpty { try await application.cleanupBegan(change) }
}
