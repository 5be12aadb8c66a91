import DBusTransport
import NotifyCenter
import NotifydProtocol

/// A path that notifyd has to watch, and the client that wants it.
struct PathWish: Hashable, Sendable {
    let id: UInt64
    let path: String
    let flags: UInt32
    let client: Identity
}

extension DaemonService {
    /// Answers when the path is watched: from then on changes are reported.
    func monitor(_ work: IncomingWork) throws(Refusal) {
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
            monitorReplies[id] = work.reply
        } else {
            work.succeed([.string(connection.uniqueName ?? "")])
        }
        perform(actions)
    }

    func watch(_ wish: PathWish) {
        watchesBeingMade.insert(wish.id)
        do throws(PathWatcher.Failure) {
            try watcher().add(wish.id, FilePath(wish.path), .wanted(wish.flags), as: wish.client) { outcome in
                self.connection.perform { self.assumeIsolated { $0.settle(wish, outcome) } }
            }
        } catch {
            settle(wish, .impossible(error.message))
        }
    }

    private func watcher() throws(PathWatcher.Failure) -> PathWatcher {
        if let paths { return paths }
        let watcher = try PathWatcher { ids in
            self.connection.perform { self.assumeIsolated { $0.pathsChanged(ids) } }
        }
        paths = watcher
        return watcher
    }

    /// The attempt to watch a path has this result.
    private func settle(_ wish: PathWish, _ outcome: PathWatcher.Outcome) {
        let (id, path) = (wish.id, wish.path)
        watchesBeingMade.remove(id)
        if watchesBeingMade.isEmpty { stopWaiting() }
        let reply = monitorReplies.removeValue(forKey: id)
        switch outcome {
        case .watched:
            watchesToRetry.remove(id)
            reply?.send(.success([.string(connection.uniqueName ?? "")]))
        case .denied:
            figures.refusals += 1
            state.watchFailed(id)
            reply?.refuse(
                Refusal(.notAuthorized, "the caller may not read \(path), or a directory on the way to it")
            )
            if configuredMonitors[id] != nil {
                Diagnostics.write("could not monitor \(path): this process may not read it")
            }
        case .impossible(let message):
            figures.refusals += 1
            if let reply {
                state.watchFailed(id)
                reply.refuse(Refusal(.limitsExceeded, "could not monitor \(path): \(message)"))
            } else {
                // Nobody waits for an answer and could try again: the path is in the configuration, or in the report of a process.
                if watchesToRetry.insert(id).inserted { Diagnostics.write("could not monitor \(path): \(message)") }
                Task {
                    try? await Task.sleep(for: Self.retryPeriod)
                    if configuredMonitors[id] != nil || state.watched[id] != nil {
                        watch(wish)
                    } else {
                        watchesToRetry.remove(id)
                    }
                }
            }
        }
    }

    /// Returns when each wanted path is watched or has been refused; or at the deadline, because a file system may hang.
    func watchesBegan(until deadline: ContinuousClock.Instant) async {
        guard !watchesBeingMade.isEmpty else { return }
        let alarm = Task {
            try? await Task.sleep(until: deadline, clock: .continuous)
            stopWaiting()
        }
        await withCheckedContinuation { untilWatched = $0 }
        alarm.cancel()
    }

    private func stopWaiting() {
        untilWatched?.resume()
        untilWatched = nil
    }

    private static let retryPeriod = Duration.seconds(2)

    /// Something happened at these paths.
    func pathsChanged(_ ids: [UInt64]) {
        for id in ids {
            figures.pathChanges += 1
            guard let name = configuredMonitors[id]?.name else {
                perform(state.changed(id))
                continue
            }
            do throws(DBusError) {
                try center.post(NotificationName(name))
            } catch {
                Diagnostics.write("\(error)")
            }
        }
    }

    /// Watches the paths of the configuration in force, and reports the names that notifyd may not post.
    func watchConfigured() {
        for id in configuredMonitors.keys { paths?.remove(id) }
        configuredMonitors = [:]
        let own = Identity.ofThisProcess
        for monitor in configurationInForce.monitors {
            guard configurationInForce.rules.allows(.write, monitor.name, by: own) else {
                Diagnostics.write(
                    "does not monitor \(monitor.path): user \(own.user) may not post \(monitor.name), so receivers would ignore "
                        + "the post; the notifyd of the system bus may post it"
                )
                continue
            }
            let id = state.takeWatchID()
            configuredMonitors[id] = monitor
            watch(PathWish(id: id, path: monitor.path, flags: 0, client: own))
        }
    }
}
