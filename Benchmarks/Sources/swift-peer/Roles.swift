import Glibc
import NotifyCenter
import Synchronization

/// The roles of Peers/roles.c on NotifyCenter, each doing the same and printing the same.
struct Roles {
    private static let warmUpRoundTrips = 200

    let bus: Bus

    func echo(_ name: String, reply: String) -> Never {
        let observation = bus.observe(name) { [bus] in bus.post(reply) }
        say("ready")
        wait(keeping: observation)
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

/// When the round trip under way began.
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

/// Until the driver ends the process.
private func wait<Observations>(keeping observations: Observations) -> Never {
    withExtendedLifetime(observations) {
        while true { pause() }
    }
}
