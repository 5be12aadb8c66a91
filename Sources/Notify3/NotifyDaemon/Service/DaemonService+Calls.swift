import DBusTransport
import NotifyCenter
import NotifydProtocol

extension DaemonService {
    /// A call arrives.
    func receive(_ work: IncomingWork) {
        let sender = work.sender
        figures.calls[work.method, default: 0] += 1
        guard arrivals.count(of: sender) < state.limits.names else {
            return refuse(work, Refusal(.limitsExceeded, "too many calls at once; wait for the answers"))
        }
        if work.method.needsIdentity, state.clients[sender] == nil, !arrivals.isUnidentified(sender) {
            arrivals.identifying(sender)
            identifications[sender] = Task { await identify(sender) }
        }
        arrivals.called(work, by: sender)
        handleArrivals()
    }

    private func identify(_ sender: String) async {
        do throws(DBusError) {
            let credentials = try await connection.credentials(of: sender)
            // If the connection has gone meanwhile, its calls are dropped.
            guard arrivals.isUnidentified(sender) else { return }
            perform(state.arrived(sender, Identity(credentials)))
            arrivals.identified(sender)
        } catch {
            for work in arrivals.withdraw(sender) {
                refuse(work, Refusal(.notAuthorized, "the bus does not say who the caller is: \(error)"))
            }
        }
        identifications[sender] = nil
        handleArrivals()
    }

    /// A connection is gone.
    func gone(_ connection: String) {
        identifications[connection] = nil
        arrivals.departed(connection)
        handleArrivals()
    }

    /// Carries out the arrivals whose turn has come.
    private func handleArrivals() {
        for arrival in arrivals.next() {
            switch arrival {
            case .call(let work, of: _): carryOut(work)
            case .departure(of: let connection):
                perform(state.gone(connection))
                inquiries.gone(connection)
                finishInquiry()
            }
        }
    }

    func refuse(_ work: IncomingWork, _ refusal: Refusal) {
        figures.refusals += 1
        work.refuse(refusal)
    }

    /// The transport has checked the signatures.
    func carryOut(_ work: IncomingWork) {
        if work.method.reads, untilGathered != nil {
            guard untilGathered?.count ?? 0 < state.limits.names else {
                return refuse(
                    work,
                    Refusal(.limitsExceeded, "too many callers wait for an answer; try again in a second")
                )
            }
            untilGathered?.append(work)
            return
        }
        do throws(Refusal) {
            switch work.method {
            case .list: try list(work)
            case .status: try status(work)
            case .monitor: try monitor(work)
            default: work.succeed(try result(work))
            }
        } catch {
            refuse(work, error)
        }
    }

    private func result(_ work: IncomingWork) throws(Refusal) -> [DBusValue] {
        let (sender, arguments) = (work.sender, work.call.arguments)
        switch work.method {
        case .enter:
            figures.refusals += try state.enter(sender, arguments[0].stringsValue ?? []).count
            return [.string(connection.uniqueName ?? "")]
        case .leave: perform(state.leave(sender, arguments[0].stringsValue ?? []))
        case .report: try report(sender, arguments)
        case .post:
            let isPosted = try post(sender, NotificationName(arguments[0].stringValue ?? ""))
            return [.string(isPosted ? connection.uniqueName ?? "" : "")]
        case .setState:
            let report = StateReport(value: arguments[1].unsignedValue ?? 0, time: arguments[2].unsignedValue ?? 0)
            try state.setState(sender, arguments[0].stringValue ?? "", report, now: BootClock.now)
        case .getState: return [.uint64(state.state(of: arguments[0].stringValue ?? ""))]
        case .suspendProcess:
            perform(try state.suspendProcess(process(arguments), by: try identity(sender)))
        case .resumeProcess:
            perform(try state.resumeProcess(process(arguments), by: try identity(sender)))
        case .unmonitor:
            guard case .int32(let token) = arguments[0] else { return [] }
            perform(state.unmonitor(sender, token))
        case .monitor, .list, .status: break
        }
        return []
    }

    /// Posts for the caller. Receivers then ask the bus about notifyd, which still runs, instead of about a caller that may have ended.
    private func post(_ sender: String, _ name: NotificationName) throws(Refusal) -> Bool {
        let caller = try identity(sender)
        guard state.rules.allows(.write, name.rawValue, by: caller), NameScope(name.rawValue) != .process else {
            throw Refusal(.notAuthorized, "user \(caller.user) may not post \(name.rawValue.prefix(200))")
        }
        // notifyd is the sender of this post, so receivers check whether notifyd may post the name.
        guard state.rules.allows(.write, name.rawValue, by: .ofThisProcess) else { return false }
        do throws(DBusError) {
            try center.post(name)
            return true
        } catch {
            Diagnostics.write("\(error)")
            return false
        }
    }

    private func process(_ arguments: [DBusValue]) -> UInt32 { UInt32(clamping: arguments[0].unsignedValue ?? 0) }

    private func identity(_ sender: String) throws(Refusal) -> Identity {
        guard let identity = state.clients[sender]?.identity else {
            throw Refusal(.notAuthorized, "\(sender) is gone")
        }
        return identity
    }

    private func report(_ sender: String, _ arguments: [DBusValue]) throws(Refusal) {
        let inquiry = arguments[0].unsignedValue ?? 0
        let report: ProcessReport
        do throws(NotifydProtocol.FieldError) {
            report = try ProcessReport(arguments[1])
        } catch {
            throw Refusal(.invalidRequest, "the report's field “\(error.field)” is missing or has another type")
        }
        let (actions, refused) = try state.reported(
            sender,
            inquiry: inquiry,
            report,
            isFirst: inquiry == firstInquiry,
            now: BootClock.now
        )
        figures.refusals += refused.count
        perform(actions)
        inquiries.settle(sender, inquiry: inquiry)
        finishInquiry()
    }
}
