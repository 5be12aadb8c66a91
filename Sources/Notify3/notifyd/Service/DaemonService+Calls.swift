import DBus
import NotifyCenter

extension DaemonService {
    /// Queues a call. Its turn comes after all arrivals are sorted.
    func receive(_ work: IncomingWork) {
        figures.calls[work.method, default: 0] += 1
        let (bytes, user) = (work.reply.callBytes, user(of: work.sender))
        arrivals.called(work, work.method.kind, bytes: bytes, by: work.sender, user: user)
    }

    func gone(_ connection: String) {
        arrivals.departed(connection)
        // Lists stop waiting for it now, not only at the turn of its departure.
        rounds.gone(connection)
        proceedRounds()
    }

    /// Carries out steps and sends relayed posts for a moment. Returns the time of the next turn; `nil` if nothing
    /// waits.
    func proceed() -> ContinuousClock.Instant? {
        var now = work { now in
            let step = arrivals.next(now: now, user: { user(of: $0) }, limits: { state.limits(ofUser: $0) })
            guard let step else { return false }
            carryOut(step)
            return true
        }
        now = work(since: now) { now in
            guard let (post, receiver) = posts.next(now: now, pace: { state.limits(ofUser: $0).pace }) else {
                return false
            }
            send(post, to: receiver)
            return true
        }
        let times = [
            arrivals.timeOfNext(now: now), posts.timeOfNext(now: now),
            unread.askBus { Diagnostics.write("\($0); notifyd ends, and the bus starts it again at the next call") },
        ]
        return times.compactMap(\.self).min()
    }

    private func carryOut(_ step: Arrivals<IncomingWork>.Step) {
        switch step {
        case .identify(let connection):
            self.connection.askCredentials(of: connection) { answer in
                self.assumeIsolated { $0.identified(connection, answer) }
            }
        case .call(let work, of: _): carryOut(work)
        case .superseded(let work): work.succeed()
        case .refuse(let work): refuse(work, Self.tooMuchWaits)
        case .refuseUnknown(let work):
            refuse(work, Refusal(.notAuthorized, "the bus does not say who the caller is"))
        case .askToReport(let connection): send(.tell, [.uint64(0)], to: connection)
        case .departure(of: let connection):
            state.gone(connection)
            relays.gone(connection)
            unread.gone(connection)
        }
        perform(state.takeHandovers())
    }

    func user(of connection: String) -> UInt32? { state.users[connection] }

    private func identified(_ connection: String, _ answer: Result<DBusConnection.PeerCredentials, DBusError>) {
        switch answer {
        case .success(let credentials):
            perform(state.arrived(connection, Identity(credentials)))
            arrivals.identified(connection)
        case .failure: arrivals.failedToIdentify(connection)
        }
    }

    private func refuse(_ work: IncomingWork, _ refusal: Refusal) {
        figures.refusals += 1
        work.refuse(refusal)
    }

    /// The transport has checked the signature. Sizes are checked before anything is copied.
    private func carryOut(_ work: IncomingWork) {
        guard let identity = state.clients[work.sender]?.identity else { return }
        let limits = state.limits(ofUser: identity.user)
        guard isWanted(work) else {
            return refuse(work, Refusal(.invalidRequest, "notifyd has not asked for a report; wait for Tell"))
        }
        let request: Request
        do throws(ArgumentReader.TooMuch) {
            request = try Request(work, limits)
        } catch {
            let isPost = work.method == .post
            return refuse(work, isPost ? limits.refusalOfPost : Limits.refusal("a call", limits.connection))
        }
        do throws(Refusal) {
            if let values = try carryOut(request, work, identity) { work.succeed(values) }
        } catch {
            refuse(work, error)
        }
    }

    /// Returns whether to read a call. A report costs more than any other call, so notifyd reads only the first report
    /// of a connection, and reports that a round waits for.
    private func isWanted(_ work: IncomingWork) -> Bool {
        guard work.method == .report, state.clients[work.sender]?.hasReported == true else { return true }
        var arguments = ArgumentReader(work.reply.arguments)
        return rounds.awaits(work.sender, in: arguments.unsigned())
    }

    /// Returns the values of the reply; `nil` if the reply comes later.
    private func carryOut(
        _ request: Request,
        _ work: IncomingWork,
        _ identity: Identity
    ) throws(Refusal) -> [DBusValue]? {
        let sender = work.sender
        switch request {
        case .enter(let names): figures.refusals += try state.enter(sender, names).count
        case .leave(let names): state.leave(sender, names)
        case .report(let round, let report):
            // A refused report ends the wait for it, too.
            defer {
                rounds.reported(sender, in: round)
                proceedRounds()
            }
            figures.refusals += try state.reported(sender, report, now: BootClock.now).count
        case .post(let name): try post(name, identity)
        case .setState(let name, let report): try state.setState(sender, name, report, now: BootClock.now)
        case .getState(let name): return [.uint64(try state.state(of: name, for: identity))]
        case .suspend(let process): perform(try state.suspendProcess(process, by: identity, silent: silent))
        case .resume(let process): perform(try state.resumeProcess(process, by: identity, silent: silent))
        case .list(let cursor):
            try list(work, identity, cursor)
            return nil
        case .status: return [.string(statusText(in: state.scope(of: identity)))]
        case .relay(let interfaces):
            try relay(interfaces, work, identity)
            return nil
        case .endRelay(let interfaces): for interface in interfaces { relays.end(interface, for: sender) }
        }
        return []
    }

    private func post(_ name: String, _ identity: Identity) throws(Refusal) {
        try state.checkPost(name, by: identity)
        do throws(DBusError) {
            try post(name)
        } catch {
            throw Refusal(.limitsExceeded, "\(error)")
        }
    }

    /// Posts for a caller, or for the configuration.
    func post(_ name: String) throws(DBusError) {
        try center.postUnchecked(NotificationName(name))
        unread.sentToAll()
    }
}

/// A call with its arguments.
enum Request {
    case enter([String])
    case leave([String])
    case report(round: UInt64, ProcessReport)
    case post(String)
    case setState(String, StateReport)
    case getState(String)
    case suspend(UInt32)
    case resume(UInt32)
    case list(cursor: UInt64)
    case status
    case relay([String])
    case endRelay([String])

    /// Reads the arguments of a call. Stops when they exceed what the caller may have.
    init(_ work: IncomingWork, _ limits: Limits) throws(ArgumentReader.TooMuch) {
        let limit = limits.connection
        var arguments = ArgumentReader(work.reply.arguments)
        switch work.method {
        case .enter: self = .enter(try Self.names(&arguments, limit))
        case .leave: self = .leave(try Self.names(&arguments, limit))
        case .report:
            let round = arguments.unsigned()
            self = .report(round: round, try ProcessReport(&arguments, limit: limit))
        case .post: self = .post(try arguments.text(limit: limits.postedName))
        case .setState:
            let name = try arguments.text(limit: limit.bytes)
            self = .setState(name, StateReport(value: arguments.unsigned(), time: arguments.unsigned()))
        case .getState: self = .getState(try arguments.text(limit: limit.bytes))
        case .suspendProcess: self = .suspend(UInt32(truncatingIfNeeded: arguments.unsigned()))
        case .resumeProcess: self = .resume(UInt32(truncatingIfNeeded: arguments.unsigned()))
        case .list: self = .list(cursor: arguments.unsigned())
        case .status: self = .status
        case .relay: self = .relay(try Self.names(&arguments, limit))
        case .endRelay: self = .endRelay(try Self.names(&arguments, limit))
        }
    }

    private static func names(
        _ arguments: inout ArgumentReader,
        _ limit: Amount
    ) throws(ArgumentReader.TooMuch) -> [String] {
        var rest = limit
        return try arguments.elements { element throws(ArgumentReader.TooMuch) in
            let name = try element.text(limit: rest.bytes)
            rest = rest - Amount(names: 1, bytes: name.utf8.count)
            guard rest.names >= 0, rest.bytes >= 0 else { throw ArgumentReader.TooMuch() }
            return name
        }
    }
}
