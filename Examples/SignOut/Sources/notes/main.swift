import Foundation
import SharedDevice

let application = SharedDeviceApplication(identifier: "org.example.notes")
let notes = try UserDataDirectory("org.example.notes")
let cleanup = CleanupCoordinator()
try cleanup.register("notes") { try await notes.remove($0.accounts) }
await application.follow(cleanup) { state in
    guard case .open(let account) = state else { return print("no notes: \(state)") }
    let file = try notes.open(for: account) + "/notes.txt"
    let note = "the secret of \(account.username)\n"
    try note.write(toFile: file, atomically: true, encoding: .utf8)
}
