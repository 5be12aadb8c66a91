import Basics
import DBus
import NotifyCenter

// The paths that the configuration monitors.
extension DaemonService {
    /// Watches the paths of the configuration in force. An unchanged line keeps its watch, because that may have a
    /// pending event.
    func watchConfigured() {
        var watched = Dictionary(grouping: configuredMonitors.keys) { configuredMonitors[$0] }
        var added: [NotifyConfiguration.Monitor] = []
        for monitor in configurationInForce.monitors where watched[monitor]?.popLast() == nil { added.append(monitor) }
        for id in watched.values.joined() {
            configuredMonitors[id] = nil
            paths?.remove(id)
        }
        for monitor in added {
            lastMonitor += 1
            configuredMonitors[lastMonitor] = monitor
            watch(lastMonitor, isFirst: true)
        }
    }

    private func watch(_ id: UInt64, isFirst: Bool) {
        guard let monitor = configuredMonitors[id] else { return }
        do throws(Problem) {
            try watcher().add(id, FilePath(monitor.path), .all) { outcome in
                self.connection.perform { self.assumeIsolated { $0.settle(id, outcome, isFirst: isFirst) } }
            }
        } catch {
            settle(id, .impossible(error.description), isFirst: isFirst)
        }
    }

    private func watcher() throws(Problem) -> PathWatcher {
        if let paths { return paths }
        let watcher = try PathWatcher { ids in
            self.connection.perform { self.assumeIsolated { $0.pathsChanged(ids) } }
        }
        paths = watcher
        return watcher
    }

    /// Handles the result of an attempt to watch a path. Repeats a failed attempt after 2 seconds, unless notifyd lacks
    /// the permission.
    private func settle(_ id: UInt64, _ outcome: PathWatcher.Outcome, isFirst: Bool) {
        guard let monitor = configuredMonitors[id] else { return }
        switch outcome {
        case .watched: break
        case .denied:
            // The next reload tries again.
            configuredMonitors[id] = nil
            Diagnostics.write(
                "could not monitor \(monitor.path): notifyd may not search a directory on the way; let its user search it"
            )
        case .impossible(let message):
            if isFirst { Diagnostics.write("could not monitor \(monitor.path): \(message)") }
            after(.seconds(2)) { $0.watch(id, isFirst: false) }
        }
    }

    private func pathsChanged(_ ids: [UInt64]) {
        for id in ids {
            guard let monitor = configuredMonitors[id] else { continue }
            figures.pathChanges += 1
            do throws(DBusError) {
                try post(monitor.name)
            } catch {
                Diagnostics.write("\(error)")
            }
        }
    }
}
