import Glibc
import NotifyCenter
import SharedDevice

/// Follows the account of the device and writes what it may show to standard output. One note for each user that it is opened for.
func follow(bus: String, directory: String, deadlyPoint: String) async throws {
    let application = SharedDeviceApplication(
        identifier: "org.example.probe",
        bus: .address(bus),
        stateDirectory: "\(directory)/state"
    )
    let notes = try UserDataDirectory(path: "\(directory)/data") { checkpoint in
        pass("\(checkpoint)", deadlyPoint: deadlyPoint)
    }
    let cleanup = CleanupCoordinator(stateDirectory: "\(directory)/state")
    try cleanup.register("first") { _ in
        pass("first", deadlyPoint: deadlyPoint)
        say("first")
    }
    try cleanup.register("notes") { try await notes.remove($0.accounts) }
    try cleanup.register("last") { _ in
        pass("last", deadlyPoint: deadlyPoint)
        say("last")
    }
    await application.follow(cleanup) { state in
        switch state {
        case .hidden: say("hidden")
        case .nobody: say("nobody")
        case .open(let account):
            log("a note of \(account.username)", "\(try notes.open(for: account))/note")
            say("open \(account.username)")
        }
    }
}
