import Foundation
import Glibc
import Synchronization

/// The part of this program for notifyd. It runs until it is killed or its parent ends.
///
///     honest BUS PEER-USER NAME…   uses notify(3) and measures, see HonestProcess
///     DEED BUS SECRET…             attacks, see Attacker; prints “ready” when it is at work, and a line that begins
///                                  with LEAK for each message of notifyd that has a secret, and for each forbidden
///                                  reply
func runHostileNotifier(_ arguments: [String]) throws {
    let (mode, address, rest) = (arguments[0], arguments[1], Array(arguments.dropFirst(2)))
    guard mode == "honest" else { return Attacker(address, secrets: rest).carryOut(mode) }
    try HonestProcess(address, peer: rest[0], quiet: Array(rest.dropFirst())).run()
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

    func carryOut(_ deed: String) {
        switch deed {
        case "calls": callAll()
        case "pipelines": pipeline(isConversing: false)
        case "conversations": pipeline(isConversing: true)
        case "unanswered-calls": callUnanswered()
        case "never-reads": neverRead()
        case "hears-nothing": hearNothing()
        case "suspends-itself": suspendItself()
        case "big-bodies": sendBigBodies()
        case "big-reports": sendBigReports()
        case "hoards": hoard()
        case "malformed": sendMalformed()
        case "names": takeNames()
        case "newcomers": comeAndGo()
        case "hang-ups": hangUp()
        case "forged-signals": forgeSignals()
        case "forged-answers": forgeAnswers()
        case "forbidden-posts": postForbidden()
        case "meddles": meddle()
        case "squats": squat()
        case "queues": queue()
        case "idles": idle()
        case "asks": ask()
        default:
            say("there is no deed “\(deed)”")
            exit(64)
        }
    }
}
