import Basics
import DBus
import FoundationEssentials
import Glibc
import NotifyCenter
import SharedDevice

/// A small app for the torture: `torture-app <identifier> <bus> <directory>`. It is correct except for the mistake that
/// the variable `TORTURE_MUTANT` names.
@main
struct TortureApp {
    static func main() async throws {
        let arguments = CommandLine.arguments
        let mistake = ProcessInfo.processInfo.environment["TORTURE_MUTANT"]
        let mutant = mistake.flatMap(Mutant.init)
        guard arguments.count == 4, mutant?.rawValue == mistake else { exit(EX_USAGE) }
        let desk = try Desk(directory: arguments[3])
        desk.note("start")
        let application = SharedDeviceApplication(
            identifier: arguments[1],
            bus: Bus(name: arguments[2]),
            stateDirectory: arguments[3] + "/state"
        )
        let follower = Follower(application: application, desk: desk, mutant: mutant)
        Task.detached {
            do {
                try await follower.run()
            } catch {
                desk.note("does not follow: \(error)")
            }
        }
        Task.detached {
            while true {
                try await Task.sleep(for: .milliseconds(8))
                desk.work()
            }
        }
        let commands = Commands(application: application, desk: desk)
        for await line in lines() {
            let words = line.split(separator: " ").map(String.init)
            Task.detached {
                let answer = "\(words.first ?? "") \(await commands.answer(Array(words.dropFirst())))"
                desk.note("answer \(answer)")
                _ = writeAll(answer + "\n", to: STDOUT_FILENO)
            }
        }
    }

    private static func lines() -> AsyncStream<String> {
        let (stream, continuation) = AsyncStream.makeStream(of: String.self)
        let thread = QuietThread.start("commands") {
            while let line = readLine() { continuation.yield(line) }
            continuation.finish()
        }
        if thread == nil { continuation.finish() }
        return stream
    }
}

/// A mistake that an app can make. The torture must detect each of them to show that it can detect others.
enum Mutant: String {
    /// Reports that the data is gone, and deletes it afterwards.
    case reportsBeforeDeleting = "reports-before-deleting"
    /// Ignores debts that it is told of after a start.
    case forgetsDebts = "forgets-debts"
    /// Keeps the old screen until there is another session to show.
    case keepsScreen = "keeps-screen"
    /// Continues its work during and after the cleanup.
    case worksOn = "works-on"
    /// Mistakes a new session of the same user for the same session.
    case sparesReturningUser = "spares-returning-user"
    /// Cleans up only if the device is signed out, not if the next user is already signed in.
    case cleansForNobodyOnly = "cleans-for-nobody-only"
}
