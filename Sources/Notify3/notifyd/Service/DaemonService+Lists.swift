import Basics
import DBus
import Glibc
import NotifyCenter

/// A waiter for a round of reports.
enum ListWaiter: Sendable {
    case caller(IncomingWork)
    /// The file of the long status.
    case statusFile
}

extension DaemonService {
    /// How long notifyd waits for processes that do not report because they are stopped.
    static let patience = Duration.seconds(1)

    // MARK: Lists

    /// Handles `List`. The first page waits for fresh reports of the processes in it; the other pages use the same
    /// reports.
    func list(_ work: IncomingWork, _ identity: Identity, _ cursor: UInt64) throws(Refusal) {
        guard cursor == 0 else { return answer(work, cursor) }
        try state.beginList(work.sender)
        rounds.want(.caller(work), state.scope(of: identity))
        proceedRounds()
    }

    func proceedRounds() {
        while true {
            for waiter in rounds.finish() {
                switch waiter {
                case .caller(let work):
                    state.endList(work.sender)
                    answer(work, 0)
                case .statusFile: writeStatus(details: true)
                }
            }
            // A round asks only connections that read what notifyd sends: the others would not report.
            let begun = rounds.begin { state.connections(in: $0).filter(reads) }
            for (number, awaited) in begun {
                for connection in awaited { send(.tell, [.uint64(number)], to: connection) }
                after(Self.patience) { service in
                    service.rounds.expire(number)
                    service.proceedRounds()
                }
            }
            if begun.allSatisfy({ !$0.awaited.isEmpty }) { return }
        }
    }

    private func answer(_ work: IncomingWork, _ cursor: UInt64) {
        guard let identity = state.clients[work.sender]?.identity else { return }
        work.succeed(state.page(cursor, for: identity).values)
    }

    // MARK: Status

    /// Returns the status with the figures that this caller may know.
    func statusText(in scope: DaemonState.Scope) -> String {
        StatusText(
            process: UInt32(getpid()),
            bus: "\(connection.bus)",
            configuration: configurationSource.path,
            reservations: configurationInForce.rules.reservations.count,
            figures: scope == .all || scope == .user(geteuid()) ? figures : nil,
            paths: paths?.figures ?? PathWatcher.Figures(),
            counts: state.counts(in: scope)
        )
        .text
    }

    /// Writes the status to the file of this process (Rules, a.15): the short one, or the one with all names and
    /// processes.
    package func writeStatus(isLong: Bool) {
        guard isLong else { return writeStatus(details: false) }
        rounds.want(.statusFile, .all)
        proceedRounds()
    }

    private func writeStatus(details: Bool) {
        var text = statusText(in: .all)
        var cursor: UInt64 = 0
        var details = details ? StatusDetails() : nil
        while details != nil {
            let page = state.page(cursor, for: Identity(user: 0))
            details?.add(page)
            cursor = page.cursor
            if cursor == 0 { break }
        }
        text += details?.text ?? ""
        do throws(StatusFileError) {
            try StatusFile.write(text)
        } catch {
            Diagnostics.write("\(error)")
        }
    }
}
