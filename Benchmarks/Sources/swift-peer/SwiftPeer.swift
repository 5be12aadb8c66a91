import Glibc
import NotifyCenter
import Synchronization

/// A peer on NotifyCenter, with the command line of the C peers.
@main
enum SwiftPeer {
    static func main() {
        let arguments = Array(CommandLine.arguments.dropFirst())
        guard let role = arguments.first else { end("a role is missing") }
        let roles = Roles(bus: Bus())
        let rest = arguments.dropFirst()
        switch (role, rest.count) {
        case ("echo", 2): roles.echo(rest[1], reply: rest[2])
        case ("echo", 3): roles.echo(rest[1], reply: rest[2], count: number(rest[3]))
        case ("ping", 3): roles.ping(rest[1], reply: rest[2], count: number(rest[3]))
        case ("sink", 2): roles.sink(rest[1], count: number(rest[2]))
        case ("flood", 2): roles.flood(rest[1], count: number(rest[2]))
        case ("listen", 2): roles.listen(rest[1], count: number(rest[2]))
        case ("post", 3): roles.post(rest[1], count: number(rest[2]), microseconds: number(rest[3]))
        case ("register", 2): roles.register(number(rest[1]), prefix: rest[2])
        case ("same", 2): roles.same(rest[1], count: number(rest[2]))
        case ("idle", 1): roles.idle(rest[1])
        default: end("\(role): no such role, or wrong arguments for it")
        }
    }

    private static func number(_ text: String) -> Int {
        guard let value = Int(text), value > 0 else { end("\(text): a positive number was expected") }
        return value
    }
}

/// The roles of Peers/roles.c on NotifyCenter. Each does and prints the same.
struct Roles {
    private static let warmUpRoundTrips = 200

    let bus: Bus

    /// Responds to `count` posts, or to any number if `count` is `nil`.
    func echo(_ name: String, reply: String, count: Int? = nil) {
        let countdown = Countdown(count ?? .max)
        let observation = bus.observe(name) { [bus] in
            bus.post(reply)
            countdown.record()
        }
        say("ready")
        _ = countdown.waitForAll()
        observation.cancel()
    }

    func ping(_ name: String, reply: String, count: Int) {
        let receipts = Receipts(count + Self.warmUpRoundTrips)
        let posted = Posted()
        let observation = bus.observe(reply) { [bus] in
            let latency = now() - posted.time.load(ordering: .acquiring)
            guard receipts.record(latency) else { return }
            posted.time.store(now(), ordering: .releasing)
            bus.post(name)
        }
        say("ready")
        posted.time.store(now(), ordering: .releasing)
        bus.post(name)
        let latencies = receipts.waitForAll().dropFirst(Self.warmUpRoundTrips).sorted()
        observation.cancel()
        say("result count=\(count) median-ns=\(latencies[count / 2]) p99-ns=\(latencies[count - 1 - count / 100])")
    }

    func sink(_ name: String, count: Int) {
        let countdown = Countdown(count)
        let observation = bus.observe(name) { countdown.record() }
        say("ready")
        let last = countdown.waitForAll()
        observation.cancel()
        say("result received=\(count) last-ns=\(last)")
    }

    func flood(_ name: String, count: Int) {
        bus.connect()
        say("ready")
        let start = now()
        for _ in 0..<count { bus.post(name) }
        say("result posted=\(count) start-ns=\(start) end-ns=\(now())")
    }

    func listen(_ name: String, count: Int) {
        let receipts = Receipts(count)
        let observation = bus.observe(name) { _ = receipts.record(now()) }
        say("ready")
        let times = receipts.waitForAll()
        observation.cancel()
        sayStamps(times)
    }

    func post(_ name: String, count: Int, microseconds: Int) {
        bus.connect()
        var times = [Int](repeating: 0, count: count)
        say("ready")
        for index in 0..<count {
            usleep(UInt32(clamping: microseconds))
            times[index] = now()
            bus.post(name)
        }
        sayStamps(times)
    }

    func register(_ count: Int, prefix: String) -> Never {
        bus.connect()
        let start = now()
        Task { [bus] in
            let observations = await bus.observeMany(prefix, count)
            let elapsed = now() - start
            say("ready")
            say("result registered=\(observations.count) elapsed-ns=\(elapsed)")
            wait(keeping: observations)
        }
        wait(keeping: ())
    }

    func same(_ name: String, count: Int) -> Never {
        bus.connect()
        let start = now()
        let observations = (0..<count).map { _ in bus.observe(name) {} }
        let elapsed = now() - start
        say("ready")
        say("result registered=\(observations.count) elapsed-ns=\(elapsed)")
        wait(keeping: observations)
    }

    func idle(_ name: String) -> Never {
        let observation = bus.observe(name) {}
        say("ready")
        wait(keeping: observation)
    }
}

private final class Posted: Sendable {
    let time = Atomic(0)
}

private func say(_ line: String) {
    print(line)
    fflush(nil)
}

private func sayStamps(_ times: [Int]) {
    say("result stamps=" + times.map(String.init).joined(separator: ","))
}

/// Waits until the driver ends the process.
private func wait<Observations>(keeping observations: Observations) -> Never {
    withExtendedLifetime(observations) {
        while true { pause() }
    }
}
