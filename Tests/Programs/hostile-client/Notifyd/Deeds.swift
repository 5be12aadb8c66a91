import Foundation
import Glibc
import Synchronization

/// The attack of a hostile process.
enum Deed: String {
    /// Calls each method in an endless loop, on many connections, and waits for the replies.
    case calls
    /// Does the same without waiting: as many calls at once as the bus grants.
    case pipelines
    /// Does the same, and answers notifyd's pings.
    case conversations
    /// Sends endless calls that expect no reply, so that the bus counts none of them.
    case unansweredCalls = "unanswered-calls"
    /// Sends calls whose replies it never reads.
    case neverReads = "never-reads"
    /// Makes notifyd post names to connections that subscribe to all of them and read none.
    case hearsNothing = "hears-nothing"
    /// Suspends and resumes itself on many connections, and does not read the signals.
    case suspendsItself = "suspends-itself"
    /// Sends calls of 30 MB.
    case bigBodies = "big-bodies"
    /// Sends reports of a million names, and reports of an earlier version with millions of tiny values.
    case bigReports = "big-reports"
    /// Makes new connections that call with 20 MB. notifyd has to ask the bus about each while its call waits.
    case hoards
    /// Sends messages that are not calls of notifyd's interface, and dictionaries that are too deep, too wide and too
    /// long.
    case malformed
    /// Makes as many connections as the bus grants, each with as many names and states as notifyd grants.
    case names
    /// Makes connections that appear, call once and vanish.
    case newcomers
    /// Makes connections that hang up in the middle of a call, or say nothing.
    case hangUps = "hang-ups"
    /// Sends signals that claim to be notifyd's, and posts names that the user may not post.
    case forgedSignals = "forged-signals"
    /// Sends replies to notifyd's calls that claim that this user is root.
    case forgedAnswers = "forged-answers"
    /// Asks notifyd to post names that the bus's policy or the configuration forbids.
    case forbiddenPosts = "forbidden-posts"
    /// Sets reserved states, and suspends other users' processes.
    case meddles
    /// Takes the bus names of notifyd and of the processes that it knows.
    case squats
    /// Joins the queue of the processes that notifyd knows, many times, and never reports.
    case queues
    /// Makes connections that say nothing.
    case idles
    /// Asks for everything that notifyd tells callers.
    case asks
}

/// A hostile process. Its threads attack until they are killed.
final class Attacker: Sendable {
    let address: String
    /// Text that no message of notifyd may contain.
    let secrets: [[UInt8]]
    /// Process ids that no message of notifyd may contain.
    let processes: [UInt32]
    private let parent = getppid()
    private let lanesAtWork = Mutex(0)

    /// - Parameter secrets: Text, or `pid:` and a process id.
    init(_ address: String, secrets: [String]) {
        self.address = address
        self.secrets = secrets.filter { !$0.hasPrefix("pid:") }.map { Array($0.utf8) }
        processes = secrets.compactMap { $0.hasPrefix("pid:") ? UInt32($0.dropFirst(4)) : nil }
    }

    // MARK: Lanes

    /// Runs `body` repeatedly on this number of threads. Each thread has a connection, and makes another one when
    /// `body` returns false because the bus has closed it. Keeps the connections in `held` open.
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
        // Ends with the test's process, even if that is killed.
        withExtendedLifetime(held) { while getppid() == parent { usleep(100_000) } }
        exit(0)
    }

    private func isAtWork(of count: Int) {
        lanesAtWork.withLock { lanesAtWork in
            lanesAtWork += 1
            if lanesAtWork == count { say("ready") }
        }
    }

    /// Reports a leak if a message of notifyd contains something that this user must not know.
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

    /// Calls, and reports a leak if the call succeeds. Returns whether there was a reply.
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
