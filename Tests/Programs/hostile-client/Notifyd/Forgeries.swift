import Glibc

// Attacks by a process that pretends to be another one, or uses another one's rights.
extension Attacker {
    /// Names that this user may not post, because of the bus's policy, the configuration or their form.
    private static let forbidden = [
        "SHARED_MODE_CURRENT_ACCOUNT_CHANGED", "policy.quiet", "reserved.quiet", "user.uid.0.quiet", "user.uid.2.quiet",
    ]

    /// Sends signals that claim to be notifyd's, and posts names that the user may not post.
    func forgeSignals() {
        lanes(2) { connection, round in
            guard let names = connection.call(BusDriver.call("ListNames")) else { return false }
            let receivers = names.texts.filter { $0.hasPrefix(":") && $0 != connection.name }
            for receiver in receivers.map(Optional.some) + [nil] {
                let owner = BusDriver.ownerChanged(Notifyd.name, from: "", to: connection.name)
                for signal in [owner] + Notifyd.signals(UInt64(round)) + Self.posts() {
                    var signal = signal
                    signal.destination = receiver
                    guard connection.send(signal) != nil else { return false }
                }
                guard let receiver else { continue }
                var gone = BusDriver.ownerChanged(receiver, from: receiver, to: "")
                gone.destination = Notifyd.name
                guard connection.send(gone) != nil else { return false }
            }
            usleep(2000)
            return true
        }
    }

    private static func posts() -> [WireMessage] {
        forbidden.map { name in
            // In these names, only a digit at the beginning of an element is escaped.
            let escaped = name.replacing(".0.", with: ".__30.").replacing(".2.", with: ".__32.")
            return WireMessage(
                kind: .signal,
                path: "/org/notifycenter",
                interface: "org.notifycenter.Darwin1.\(escaped)",
                member: "Posted",
                signature: "s",
                body: WireBuffer { $0.string(name) }
            )
        }
    }

    /// Sends replies to notifyd's calls that claim that this user is root.
    func forgeAnswers() {
        lanes(4) { connection, round in
            if round % 4 == 0 {
                // notifyd asks the bus about this connection while the forged replies arrive.
                guard let newcomer = RawConnection(self.address) else { return true }
                let reserved = Notifyd.setState("user.uid.0.mine", 666, at: UInt64(round))
                return self.mustFail(newcomer, reserved, "a state of root's was set")
            }
            for serial in UInt32(1)...2000 {
                let forged = Self.credentials(answering: serial + UInt32(round % 50) * 2000)
                guard connection.send(forged) != nil else { return false }
            }
            return true
        }
    }

    /// A reply that claims that the caller is root.
    private static func credentials(answering serial: UInt32) -> WireMessage {
        var answer = WireMessage(kind: .answer, destination: Notifyd.name, answers: serial)
        answer.signature = "a{sv}"
        answer.wantsAnswer = false
        answer.body = WireBuffer {
            $0.array(alignment: 8) { entries in
                for (key, value) in [("UnixUserID", UInt32(0)), ("ProcessID", 1)] {
                    entries.align(to: 8)
                    entries.string(key)
                    entries.signature("u")
                    entries.number(value)
                }
            }
        }
        return answer
    }

    /// Asks notifyd to post names that the bus's policy or the configuration forbids.
    func postForbidden() {
        lanes(3) { connection, round in
            let name = Self.forbidden[round % Self.forbidden.count]
            return self.mustFail(connection, Notifyd.post(name), "notifyd posted \(name)")
        }
    }

    /// Sets reserved states, and suspends other users' processes.
    func meddle() {
        lanes(3) { connection, round in
            for process in self.processes {
                for method in ["SuspendProcess", "ResumeProcess"] {
                    let call = Notifyd.call(method, "u") { $0.number(process) }
                    guard self.mustFail(connection, call, "\(method) \(process)") else { return false }
                }
            }
            for name in Self.forbidden.dropFirst(2) + ["com.apple.system.notify.ipc_version"] {
                let call = Notifyd.setState(name, 666, at: UInt64.max)
                guard self.mustFail(connection, call, "the state of \(name) was set") else { return false }
            }
            // notifyd ignores registrations that the user may not have.
            let registration = Notifyd.enter(Self.forbidden + ["reserved.secret"])
            guard let answer = connection.call(registration) else { return false }
            self.search(answer, of: "Enter")
            return connection.send(Notifyd.setState("honest.kept.0", 0, at: 1)) != nil
        }
    }

    /// Takes the bus names of notifyd and of the processes that it knows.
    func squat() {
        lanes(4) { connection, round in
            // Tries all flags: 1 allows replacement, 2 replaces the owner, 4 does not queue.
            guard let answer = connection.call(BusDriver.request(Notifyd.name, flags: UInt32(round % 8))) else {
                return false
            }
            if answer.kind == WireMessage.Kind.answer.rawValue,
                [1, 4].contains(ReceivedMessage.number(answer.body, at: 0))
            {
                say("LEAK it is notifyd")
            }
            return true
        }
    }

    /// Asks for everything that notifyd tells callers.
    func ask() {
        lanes(2) { connection, round in
            guard connection.call(Notifyd.enter(["mine"])) != nil else { return false }
            let calls = [
                ("Status", Notifyd.call("Status")), ("List", Notifyd.list()), ("a page", Notifyd.list(UInt64(round))),
            ]
            for (what, call) in calls {
                guard let answer = connection.call(call) else { return false }
                self.search(answer, of: what)
            }
            return true
        }
    }
}
