import DBusTransport
import Glibc
import NotifyCenter
import SharedDevice

// An app that signs out whoever is signed in, from the browser too, and prints what became of that; then it stays.
// Arguments: the bus's address, the state directory, the seconds that the browser gets.
let arguments = CommandLine.arguments
guard arguments.count == 4, let deadline = Double(arguments[3]) else { fatalError("wrong arguments") }
let application = SharedDeviceApplication(
    identifier: "org.example.probe",
    bus: .address(arguments[1]),
    stateDirectory: arguments[2]
)
guard let account = try await application.getCurrentAccount().current else { fatalError("nobody is signed in") }
var parameters = SignoutParameters(signoutFromBrowser: true)
parameters.browserDeadline = .seconds(deadline)
print(try await application.signout(with: account, signoutParameters: parameters).browser)
fflush(nil)
// What is killed is killed by a process that lives.
while readLine() != nil {}
