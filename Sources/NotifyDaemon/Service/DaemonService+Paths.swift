import DBusTransport
import Glibc
import NotifyCenter
import NotifydProtocol

extension DaemonService {
    /// Answers when the path is watched: what changes from then on is told.
    func monitor(_ work: IncomingWork) throws(Denial) {
        guard case .int32(let token) = work.call.arguments[0], case .uint32(let flags) = work.call.arguments[3] else {
            return
        }
        let actions = try state.monitor(
            work.sender,
            token: token,
            name: work.call.arguments[1].stringValue ?? "",
            path: work.call.arguments[2].stringValue ?? "",
            flags: flags
        )
        if case .watch(let id, _, _, _) = actions.first {
            monitoring[id] = work.reply
        } else {
            work.succeed([.string(connection.uniqueName ?? "")])
        }
        perform(actions)
    }

    func watch(_ id: UInt64, _ path: String, _ flags: UInt32, _ identity: ClientIdentity) {
        guard let identity = FileIdentity(of: identity), let paths else {
            return watched(id, .denied)
        }
        paths.add(id, FilePath(path), .wanted(flags), as: identity) { outcome in
            self.connection.perform { self.assumeIsolated { $0.watched(id, outcome) } }
        }
    }

    private func watched(_ id: UInt64, _ outcome: PathWatcher.Outcome) {
        let reply = monitoring.removeValue(forKey: id)
        switch outcome {
        case .watched: reply?.send(.success([.string(connection.uniqueName ?? "")]))
        case .denied:
            refuse(
                id,
                reply,
                Denial(.notAuthorized, "the path, or a directory on the way, may not be read by the caller")
            )
        case .impossible(let message):
            refuse(id, reply, Denial(.limitsExceeded, "could not watch the path: \(message)"))
        }
    }

    private func refuse(_ id: UInt64, _ reply: CallReply?, _ denial: Denial) {
        figures.refusals += 1
        if let name = configured.removeValue(forKey: id) {
            Diagnostics.write("could not monitor a path for \(name): \(denial.message)")
        }
        state.watchFailed(id)
        reply?.refuse(denial)
    }

    /// Something happened at these paths.
    func pathsChanged(_ ids: [UInt64]) {
        for id in ids {
            figures.pathChanges += 1
            guard let name = configured[id] else {
                perform(state.changed(id))
                continue
            }
            do throws(DBusError) {
                try center.post(name)
            } catch {
                Diagnostics.write("\(error)")
            }
        }
    }

    /// Watches what the configuration in force says.
    func watchConfigured() {
        for id in configured.keys { paths?.remove(id) }
        configured = [:]
        let own = ClientIdentity(user: geteuid(), process: UInt32(getpid()))
        for monitor in configurationInForce.monitors {
            let id = state.takeWatchID()
            configured[id] = NotificationName(monitor.name)
            watch(id, monitor.path, 0, own)
        }
    }
}
