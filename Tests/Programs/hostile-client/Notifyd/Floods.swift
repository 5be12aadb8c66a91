import Glibc

// Attacks that keep notifyd busy or fill its memory.
extension Attacker {
    private static func calls(_ round: Int) -> [WireMessage] {
        let name = "flood.\(round % 100)"
        return [
            Notifyd.getState(name), Notifyd.setState(name, 1, at: UInt64(round)), Notifyd.enter([name]),
            Notifyd.post(name), Notifyd.list(), Notifyd.call("Status"), introspection,
        ]
    }

    /// Calls each method in an endless loop, on many connections, and waits for the replies.
    func callAll() {
        lanes(24) { connection, round in
            let calls = Self.calls(round)
            return connection.call(calls[round / 24 % calls.count]) != nil
        }
    }

    /// Calls each method without waiting: as many calls at once as the bus grants. A process that converses answers
    /// notifyd's pings.
    func pipeline(isConversing: Bool) {
        lanes(4) { connection, round in
            for call in Self.calls(round) {
                guard connection.send(call, times: 20) else { return false }
            }
            guard isConversing else {
                connection.drain()
                return true
            }
            connection.answerPings()
            guard round / 4 % 50 == 49 else { return true }
            // A process that reads gets a reply, at least a refusal.
            let answer = connection.call(Notifyd.getState("n"), seconds: 20)
            if answer == nil { say("LEAK nothing: notifyd does not respond") }
            return answer != nil
        }
    }

    /// Makes notifyd post names to connections that subscribe to all of them and read none.
    func hearNothing() {
        let rule = BusDriver.call("AddMatch", "s") { $0.string("type='signal',sender='\(Notifyd.name)'") }
        let held = (0..<3).compactMap { _ in RawConnection(address) }
        for connection in held { _ = connection.call(rule) }
        func post(_ length: Int) -> WireMessage {
            Notifyd.post("user.uid.\(getuid())." + String(repeating: "a", count: length))
        }
        // Before this client is ready, notifyd has as many bytes of posts in flight as dbus-daemon holds for one
        // sender, unless notifyd refuses a post.
        if let connection = RawConnection(address) {
            for _ in 0..<600 where connection.call(post(250_000))?.kind != WireMessage.Kind.answer.rawValue { break }
        }
        let short = post(1000)
        lanes(8, keeping: held) { connection, _ in connection.call(short) != nil }
    }

    /// Suspends and resumes this process without end. Its registered connections do not read the signals.
    func suspendItself() {
        let held = connections()
        for connection in held { connection.send(Notifyd.enter(["suspended"])) }
        lanes(2, keeping: held) { connection, round in
            let method = round / 2 % 2 == 0 ? "SuspendProcess" : "ResumeProcess"
            let call = Notifyd.call(method, "u") { $0.number(UInt32(getpid())) }
            guard connection.send(call, times: 20) else { return false }
            connection.answerPings()
            return true
        }
    }

    /// Sends endless calls that expect no reply, so that the bus counts none of them.
    func callUnanswered() {
        lanes(8) { connection, round in
            var call = Self.calls(round)[round / 8 % 4]
            call.wantsAnswer = false
            return connection.send(call, times: 100)
        }
    }

    private static var introspection: WireMessage {
        .call("Introspect", of: "org.freedesktop.DBus.Introspectable", at: Notifyd.path, to: Notifyd.name)
    }

    /// Sends calls whose replies it never reads.
    func neverRead() {
        lanes(8) { connection, round in
            let calls = Self.calls(round)
            return connection.send(calls[round / 8 % calls.count], times: 50)
        }
    }

    /// Sends calls of 30 MB.
    func sendBigBodies() {
        let text = String(repeating: "x", count: 30 << 20)
        lanes(2) { connection, round in
            let calls = [
                Notifyd.getState(text), Notifyd.enter([text]), Notifyd.setState(text, 1, at: 1), Notifyd.post(text),
            ]
            // A bus that does not forward the message hangs up.
            return connection.call(calls[round / 2 % 4]) != nil
        }
    }

    /// Sends reports of 700,000 names, and reports of an earlier version with millions of tiny values.
    func sendBigReports() {
        // 4 bytes each: a signature “y” and a byte.
        let value = [UInt8]([1, UInt8(ascii: "y"), 0, 7])
        let values = Self.report {
            $0.signature("av")
            $0.array { array in array.raw((0..<7_000_000).flatMap { _ in value }) }
        }
        let reports = [values, Notifyd.report(700_000), Notifyd.report(20_000, "a name")]
        lanes(2) { connection, round in connection.call(reports[round / 2 % reports.count]) != nil }
    }

    /// A report in the form of an earlier version: a number, and a dictionary with one variant, which `value` writes.
    private static func report(_ value: (inout WireBuffer) -> Void) -> WireMessage {
        Notifyd.call("Report", "ta{sv}") {
            $0.number(UInt64(0))
            $0.array(alignment: 8) { fields in
                fields.string("names")
                value(&fields)
            }
        }
    }

    /// Makes new connections that call with 20 MB. notifyd has to ask the bus about each while its call waits.
    func hoard() {
        let text = String(repeating: "x", count: 20 << 20)
        lanes(3) { _, round in
            guard let newcomer = RawConnection(self.address) else { return true }
            let calls = [Notifyd.enter([text]), Notifyd.report(1, text), Notifyd.setState(text, 1, at: 1)]
            newcomer.send(calls[round / 3 % 3])
            // Without this second call, the first one would disappear together with its connection.
            _ = newcomer.call(Notifyd.getState("n"))
            return true
        }
    }

    /// Sends messages that are not calls of notifyd's interface, and dictionaries that are too deep, too wide and too
    /// long.
    func sendMalformed() {
        let deep = Self.report { fields in
            // D-Bus allows 64 nested containers.
            for _ in 0..<60 { fields.signature("v") }
            fields.signature("s")
            fields.string("deep")
        }
        let wide = Self.report { fields in
            fields.signature("a{sv}")
            fields.array(alignment: 8) { entries in
                for number in 0..<20_000 {
                    entries.align(to: 8)
                    entries.string("key \(number)")
                    entries.signature("y")
                    entries.byte(1)
                }
            }
        }
        var calls = [deep, wide]
        calls += Notifyd.methods.map { method in Notifyd.call(method, "d") { $0.number(UInt64(0)) } }
        calls += Notifyd.methods.map { Notifyd.call($0) }
        calls += ["NoSuchMethod", "Monitor"].map { method in Notifyd.call(method, "u") { $0.number(UInt32(1)) } }
        var elsewhere = Notifyd.getState("n")
        elsewhere.path = "/" + String(repeating: "a/", count: 100) + "a"
        var nowhere = Notifyd.getState("n")
        nowhere.interface = nil
        calls += [elsewhere, nowhere, Notifyd.enter((0..<200_000).map { _ in "" })]
        calls.append(Notifyd.enter([String(repeating: "\u{1}", count: 1 << 20)]))
        let all = calls
        lanes(3) { connection, round in connection.call(all[round % all.count]) != nil }
    }

    /// Returns as many connections as the bus grants this user, except for a few.
    private func connections() -> [RawConnection] {
        var connections: [RawConnection] = []
        while connections.count < 300, let connection = RawConnection(address) { connections.append(connection) }
        if connections.count > 8 { connections.removeLast(4) }
        return connections
    }

    /// Makes as many connections as the bus grants, each with as many names and states as notifyd grants.
    func takeNames() {
        let held = connections()
        for (number, connection) in held.enumerated() {
            let names = (0..<4000).lazy.map { "attack.\(number).\($0)." + String(repeating: "n", count: 40) }
            _ = connection.call(Notifyd.enter(names))
            for state in 0..<20 { connection.send(Notifyd.setState("attack.\(number).\(state)", 1, at: 1)) }
        }
        for connection in held { _ = connection.call(Notifyd.getState("attack")) }
        lanes(2, keeping: held) { connection, round in
            let names = (0..<1000).map { "more.\(round % 7).\($0)" }
            for _ in 0..<5 {
                connection.send(Notifyd.enter(names))
                connection.send(Notifyd.leave(names))
            }
            return connection.call(Notifyd.getState("n")) != nil
        }
    }

    /// Joins the queue of the processes that notifyd knows, many times, and never reports.
    func queue() {
        let held = connections()
        for connection in held {
            _ = connection.call(BusDriver.request(Notifyd.clientsName, flags: 0))
            _ = connection.call(Notifyd.enter(["queue.\(connection.name)"]))
        }
        lanes(2, keeping: held) { connection, round in
            let call = BusDriver.request(Notifyd.clientsName, flags: UInt32(round % 8))
            guard connection.call(call) != nil else { return false }
            return connection.call(Notifyd.getState("n")) != nil
        }
    }

    /// Makes connections that say nothing.
    func idle() {
        lanes(1, keeping: connections()) { _, _ in
            usleep(100_000)
            return true
        }
    }

    /// Makes connections that appear, call once and vanish.
    func comeAndGo() {
        lanes(8) { _, round in
            guard let newcomer = RawConnection(self.address) else { return true }
            switch round / 8 % 3 {
            case 0: _ = newcomer.call(Notifyd.enter(["newcomer.\(round % 50)"]))
            case 1: newcomer.send(Notifyd.setState("newcomer", UInt64(round), at: 1))
            default: newcomer.send(Notifyd.list())
            }
            return true
        }
    }

    /// Makes connections that hang up in the middle of a call, or say nothing.
    func hangUp() {
        lanes(8) { _, round in
            guard let connection = RawConnection(self.address, isSilent: round % 8 == 7) else { return true }
            let bytes = Notifyd.enter((0..<500).map { "half.\($0)" }).bytes(serial: 9)
            switch round / 8 % 4 {
            // Hangs up after a whole call, before the end of its body, in its header, or in the greeting.
            case 0: _ = connection.write(bytes + bytes)
            case 1: _ = connection.write(Array(bytes.dropLast(100)))
            case 2: _ = connection.write(Array(bytes.prefix(20)))
            default: _ = connection.write(Array("\0AUTH EXTERNAL ".utf8))
            }
            return true
        }
    }
}
