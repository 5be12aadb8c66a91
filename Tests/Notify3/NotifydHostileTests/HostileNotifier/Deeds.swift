import Foundation
import Glibc
import Synchronization

/// What a hostile process does.
enum Deed: String {
    /// Calls each method without end, on many connections, and waits for the answers.
    case calls
    /// The same without waiting: as many calls at once as the bus grants.
    case pipelines
    /// The same, and says that it reads the answers.
    case conversations
    /// Calls without end that want no answer, so that the bus counts none of them.
    case unansweredCalls = "unanswered-calls"
    /// Calls whose answers are never read.
    case neverReads = "never-reads"
    /// Has notifyd post names to connections that subscribe to all of them and read none.
    case hearsNothing = "hears-nothing"
    /// Suspends and resumes itself, and reads nothing of it on many connections.
    case suspendsItself = "suspends-itself"
    /// Calls of 30 MB.
    case bigBodies = "big-bodies"
    /// Reports of a million names, and what were reports of millions of tiny values.
    case bigReports = "big-reports"
    /// New connections that call with 20 MB: the bus has to be asked about each while its call waits.
    case hoards
    /// Calls that are messages but not calls of notifyd's, and dictionaries that are too deep, too wide and too long.
    case malformed
    /// As many connections as the bus grants, each with as many names and states as notifyd grants.
    case names
    /// Connections that appear, call once and vanish.
    case newcomers
    /// Connections that hang up in the middle of a call, or say nothing.
    case hangUps = "hang-ups"
    /// Signals that claim to be notifyd's, and posts of names that the user may not post.
    case forgedSignals = "forged-signals"
    /// Answers to calls of notifyd's, which say that this user is root.
    case forgedAnswers = "forged-answers"
    /// Has notifyd post what the bus's policy or the configuration forbids.
    case forbiddenPosts = "forbidden-posts"
    /// Sets reserved states, suspends others' processes.
    case meddles
    /// Takes the bus names of notifyd and of the processes that it knows.
    case squats
    /// Queues with the processes that notifyd knows, many times, and never reports.
    case queues
    /// Connections that say nothing.
    case idles
    /// Asks for everything that notifyd tells.
    case asks
}

/// A hostile process: threads that do their deed until they are killed.
final class Attacker: Sendable {
    let address: String
    /// Text that no message of notifyd's may have.
    let secrets: [[UInt8]]
    /// Process ids that no message of notifyd's may have.
    let processes: [UInt32]
    private let parent = getppid()
    private let lanesAtWork = Mutex(0)

    /// - Parameter secrets: text, or `pid:` and a process id.
    init(_ address: String, secrets: [String]) {
        self.address = address
        self.secrets = secrets.filter { !$0.hasPrefix("pid:") }.map { Array($0.utf8) }
        processes = secrets.compactMap { $0.hasPrefix("pid:") ? UInt32($0.dropFirst(4)) : nil }
    }

    // MARK: Lanes

    /// Runs `body` again and again on so many threads. Each has a connection, and makes another when the bus has closed it (`body` returns
    /// false). Keeps connections open meanwhile.
    func lanes(
        _ count: Int,
        keeping held: [RawConnection] = [],
        _ body: @escaping @Sendable (RawConnection, Int) -> Bool
    ) -> Never {
        for lane in 0..<count {
            Thread.detachNewThread { [self] in
                var round = lane
                var connection: RawConnection?
                while true {
                    if connection == nil { connection = RawConnection(address) }
                    if let open = connection, body(open, round) {
                        round += count
                    } else {
                        connection = nil
                        usleep(1000)
                    }
                    if round < 2 * count { isAtWork(of: count) }
                }
            }
        }
        // A test that was killed does not leave it behind.
        withExtendedLifetime(held) { while getppid() == parent { usleep(100_000) } }
        exit(0)
    }

    private func isAtWork(of count: Int) {
        lanesAtWork.withLock { lanesAtWork in
            lanesAtWork += 1
            if lanesAtWork == count { say("ready") }
        }
    }

    /// Says so if a message of notifyd's tells what this user must not know.
    func search(_ message: ReceivedMessage, of what: String) {
        for secret in secrets where message.body.contains(secret) {
            say("LEAK \(what) tells \(String(decoding: secret, as: UTF8.self))")
        }
        var position = 0
        while position + 4 <= message.body.count {
            let number = ReceivedMessage.number(message.body, at: position)
            if processes.contains(number) { say("LEAK \(what) tells the process \(number)") }
            position += 4
        }
    }

    /// Calls, and says so if that succeeds. Returns whether there was an answer.
    func mustFail(_ connection: RawConnection, _ call: WireMessage, _ what: String) -> Bool {
        guard let answer = connection.call(call) else { return false }
        if answer.kind == WireMessage.Kind.answer.rawValue { say("LEAK \(what)") }
        return true
    }

    // MARK: Deeds

    func carryOut(_ deed: Deed) {
        switch deed {
        case .calls: callAll()
        case .pipelines: pipeline()
        case .conversations: converse()
        case .unansweredCalls: callUnanswered()
        case .neverReads: neverRead()
        case .hearsNothing: hearNothing()
        case .suspendsItself: suspendItself()
        case .bigBodies: sendBigBodies()
        case .bigReports: sendBigReports()
        case .hoards: hoard()
        case .malformed: sendMalformed()
        case .names: takeNames()
        case .newcomers: comeAndGo()
        case .hangUps: hangUp()
        case .forgedSignals: forgeSignals()
        case .forgedAnswers: forgeAnswers()
        case .forbiddenPosts: postForbidden()
        case .meddles: meddle()
        case .squats: squat()
        case .queues: queue()
        case .idles: idle()
        case .asks: ask()
        }
    }
}
