import DBusTransport
import FoundationEssentials
import Glibc
import NotifyCenter
import SharedDevice

/// A small listener app for the torture: `torture-app <identifier> <bus> <directory>`. It is a correct app, but for what the environment's
/// `TORTURE_MUTANT` has it do wrong.
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
                say(answer)
            }
        }
    }

    /// The lines of standard input, read on a thread of their own.
    private static func lines() -> AsyncStream<String> {
        let (stream, continuation) = AsyncStream.makeStream(of: String.self)
        let thread = QuietThread.start("commands") {
            while let line = readLine() { continuation.yield(line) }
            continuation.finish()
        }
        if thread == nil { continuation.finish() }
        return stream
    }

    /// A whole line, from any thread.
    private static func say(_ line: String) {
        let line = line + "\n"
        _ = write(STDOUT_FILENO, line, line.utf8.count)
    }
}

/// A mistake that an app can make. The torture has to find each of them, or it would find no others.
enum Mutant: String {
    /// Reports that the data is gone, and deletes it then.
    case reportsBeforeDeleting = "reports-before-deleting"
    /// Does nothing about what it is told, after a start, that it still has.
    case forgetsDebts = "forgets-debts"
    /// Leaves the screen as it is until there is something else to show.
    case keepsScreen = "keeps-screen"
    /// Goes on with its work while it cleans up, and afterwards.
    case worksOn = "works-on"
    /// Takes the same user in another session for the same session.
    case sparesReturningUser = "spares-returning-user"
    /// Cleans up only when nobody is signed in, not when the next user is there already.
    case cleansForNobodyOnly = "cleans-for-nobody-only"
}
