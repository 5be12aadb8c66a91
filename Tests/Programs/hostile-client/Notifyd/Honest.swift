import DBus
import Dispatch
import Foundation
import Glibc
import notify

/// A process that uses notify(3) as programs do, and measures how long that takes. For each line “measure ROUNDS” on
/// standard input, it prints one line of figures: `state` (reading a state), `set`, `post`, `reserved` and `bus` are
/// medians in microseconds, `…-worst` the longest times, `failed` and `wrong` counts.
final class HonestProcess {
    /// How long one measurement takes, in seconds, if it then has enough rounds for a median.
    private static let patience = 5.0
    /// With fewer than `leastRounds`, a measurement goes on for up to `longest` seconds, because machines can stall.
    private static let (leastRounds, longest) = (9, 60.0)
    /// The number of seconds after which a post counts as lost.
    private static let lost = 25.0
    /// The number of names that this process registers at each measurement, in addition to those of the rounds.
    private static let names = 200

    private let peer: String
    private let user = "\(getuid())"
    private let bus: DBusConnection
    /// `pong` hears the other process's reply, and `own` this process's own posts.
    private let pong: Hearing
    private let own: Hearing
    /// Names that only an attacker would post, and the tokens that hear them.
    private var quiet: [(name: String, token: Int32)] = []
    private let kept: Int32
    private var failed = 0
    private var wrong = 0

    /// A registration with a file descriptor of notify(3).
    private struct Hearing {
        let name: String
        let descriptor: Int32

        init(_ name: String) {
            self.name = name
            var (descriptor, token): (Int32, Int32) = (-1, -1)
            require(notify_register_file_descriptor(name, &descriptor, 0, &token), "hear \(name)")
            self.descriptor = descriptor
        }

        /// Reads one token, and waits for it if none has arrived.
        func wait(seconds: Double) -> Bool {
            var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            guard poll(&waiting, 1, CInt(seconds * 1000)) > 0 else { return false }
            var token: Int32 = 0
            return read(descriptor, &token, 4) == 4
        }

        /// Discards the tokens that have arrived.
        func clear() { while wait(seconds: 0) {} }
    }

    init(_ address: String, peer: String, quiet: [String]) throws {
        self.peer = peer
        bus = try DBusConnection.open(Bus(name: address))
        pong = Hearing("honest.pong.\(peer)")
        own = Hearing("user.uid.\(user).own")
        kept = Self.registered("honest.kept.\(user)")
        require(notify_set_state(kept, 42), "set a state")
        for name in quiet + ["user.uid.\(user).quiet"] {
            let token = Self.registered(name)
            var isPosted: Int32 = 0
            // The first check is always true.
            notify_check(token, &isPosted)
            self.quiet.append((name, token))
        }
        var echo: Int32 = -1
        let answer = "honest.pong.\(user)"
        require(
            notify_register_dispatch("honest.ping.\(user)", &echo, .global()) { _ in notify_post(answer) },
            "register the handler that answers pings"
        )
    }

    private static func registered(_ name: String) -> Int32 {
        var token: Int32 = -1
        require(notify_register_check(name, &token), "register \(name)")
        return token
    }

    func run() {
        say("ready")
        while let line = readLine() {
            let words = line.split(separator: " ")
            if words.first == "measure", let rounds = words.last.flatMap({ Int($0) }) { measure(rounds) }
        }
    }

    // MARK: Measuring

    private func measure(_ rounds: Int) {
        (failed, wrong) = (0, 0)
        var figures: [String: [Double]] = ["state": [], "set": [], "post": [], "reserved": [], "bus": []]
        let start = now()
        let tokens = register()
        var round = 0
        func isTimeLeft() -> Bool { now() < start + (round < Self.leastRounds ? Self.longest : Self.patience) }
        while round == 0 || (round < rounds && isTimeLeft()) {
            figures["state"]?.append(timed { readState() })
            figures["set"]?.append(timed { setState(round) })
            figures["post"]?.append(timed { exchangePosts() })
            figures["reserved"]?.append(timed { postReserved() })
            figures["bus"]?.append(timed { askBus() })
            round += 1
            usleep(5000)
        }
        for token in tokens { notify_cancel(token) }
        checkQuiet()
        let medians = figures.map { name, values in
            let values = values.sorted()
            return "\(name)=\(Int(values[values.count / 2] * 1e6)) \(name)-worst=\(Int(values[values.count - 1] * 1e6))"
        }
        say("figures rounds=\(round) \(medians.joined(separator: " ")) failed=\(failed) wrong=\(wrong)")
    }

    private func timed(_ body: () -> Void) -> Double {
        let start = now()
        body()
        return now() - start
    }

    /// Registers many names at once. Names of other users must not use up this user's limit.
    private func register() -> [Int32] {
        (0..<Self.names).compactMap { number in
            var token: Int32 = -1
            return succeeds(notify_register_check("honest.\(user).\(number)", &token)) ? token : nil
        }
    }

    private func readState() {
        var value: UInt64 = 0
        guard succeeds(notify_get_state(kept, &value)) else { return }
        expect(value == 42, "the state that was set at the start was \(value)")
    }

    /// Registers a new name, sets its state, and reads the state back.
    private func setState(_ round: Int) {
        var (token, value): (Int32, UInt64) = (-1, 0)
        guard succeeds(notify_register_check("honest.state.\(user).\(round % 7)", &token)) else { return }
        defer { notify_cancel(token) }
        guard succeeds(notify_set_state(token, UInt64(round) + 1)) else { return }
        guard succeeds(notify_get_state(token, &value)) else { return }
        expect(value == UInt64(round) + 1, "a state was \(value) and not \(round + 1)")
    }

    /// Posts to the other process, and waits for its post.
    private func exchangePosts() {
        pong.clear()
        guard succeeds(notify_post("honest.ping.\(peer)")) else { return }
        if !pong.wait(seconds: Self.lost) { fail("no answer to a post") }
    }

    /// Posts a reserved name, through notifyd.
    private func postReserved() {
        own.clear()
        guard succeeds(notify_post(own.name)) else { return }
        if !own.wait(seconds: Self.lost) { fail("a post of \(own.name) was not heard") }
    }

    /// Measures how long the bus itself takes.
    private func askBus() {
        do {
            try bus.flush()
        } catch {
            fail("the bus: \(error)")
        }
    }

    private func checkQuiet() {
        for (name, token) in quiet {
            var isPosted: Int32 = 0
            notify_check(token, &isPosted)
            expect(isPosted == 0, "heard \(name), which no process may post")
        }
    }

    private func succeeds(_ status: UInt32) -> Bool {
        if status != 0 { fail("status \(status)") }
        return status == 0
    }

    private func fail(_ text: String) {
        failed += 1
        say("failed: \(text)")
    }

    private func expect(_ condition: Bool, _ text: String) {
        guard !condition else { return }
        wrong += 1
        say("wrong: \(text)")
    }
}

/// Ends the process if the status is an error, because the process is of no use then.
private func require(_ status: UInt32, _ what: String) {
    guard status != 0 else { return }
    say("could not \(what): status \(status)")
    exit(70)
}
