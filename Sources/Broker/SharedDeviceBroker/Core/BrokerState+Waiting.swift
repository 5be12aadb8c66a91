import DBusTransport
import DeviceConfiguration
import Foundation
import SharedDevice

/// Requests that wait for the disk, for a round or for a time.
extension BrokerState {
    /// A request that waits.
    struct Waiting: Sendable {
        enum Reason: Sendable {
            /// The disk has to have this change before the app gets the account.
            case account(Request, Participant, change: UInt64)
            /// The same for a token.
            case token(Request, Participant, Grant, change: UInt64)
            /// A change has to be on the disk.
            case stored(BrokerProtocol.Fields, Request, Participant?, change: UInt64)
            /// Open rounds hold up a sign-in.
            case signIn(Request, Participant)
            /// The round is to change.
            case round(Request)
        }

        let connection: String
        /// When the request is answered at the latest; `nil` means that the disk decides.
        let until: Duration?
        let reason: Reason
    }

    /// Looks at every request that waits, where something has changed or its time is over.
    mutating func answerWaiting() {
        let hasChanged = isTouched
        isTouched = false
        for (number, entry) in waiting.sorted(by: { $0.key < $1.key }) {
            guard hasChanged || entry.until.map({ $0 <= now.uptime }) ?? false else { continue }
            waiting[number] = nil
            let isLate = entry.until.map { $0 <= now.uptime } ?? false
            switch entry.reason {
            case .account(let request, let participant, let change):
                resume(request, entry, waitsFor: change) { state throws(Refusal) in
                    try state.checkIdentity(request, participant)
                    return try state.currentAccount(request, participant)
                }
            case .token(let request, let participant, let grant, let change):
                resume(request, entry, waitsFor: change) { state throws(Refusal) in
                    try state.handOver(request, participant, grant)
                }
            case .stored(let fields, let request, let participant, let change):
                let answer = confirmation(of: request, fields, participant)
                if disk.committed >= change {
                    reply(number, answer)
                } else if request.call.isSignOut, isLate || (disk.problem != nil && !disk.isWriting) {
                    // The device is signed out; whoever asks may know that the disk does not have it yet.
                    reply(number, answer.merging(["stored": .boolean(false)]) { $1 })
                } else if let problem = disk.problem {
                    effects.append(.reply(number, .failure(.notStored(problem))))
                } else {
                    waiting[number] = entry
                }
            case .signIn(let request, let participant):
                do throws(Refusal) {
                    if let fields = try signIn(request, participant, isLate: isLate, until: entry.until) {
                        reply(number, fields)
                    }
                } catch {
                    refuse(request, error)
                }
            case .round(let request):
                if let fields = round(request, isLate: isLate, until: entry.until) { reply(number, fields) }
            }
        }
    }

    private mutating func resume(
        _ request: Request,
        _ entry: Waiting,
        waitsFor change: UInt64,
        _ body: (inout BrokerState) throws(Refusal) -> BrokerProtocol.Fields?
    ) {
        do throws(Refusal) {
            guard disk.committed >= change else {
                if let problem = disk.problem { throw .notStored(problem) }
                waiting[request.number] = entry
                return
            }
            if let fields = try body(&self) { reply(request.number, fields) }
        } catch {
            refuse(request, error)
        }
    }

    /// The answer to a request whose change is on the disk. It says what its app would ask next: the round after a sign-out, and after a
    /// receipt who is signed in, while that is nobody. An account needs a question of its own, which records that the app has it.
    private func confirmation(
        of request: Request,
        _ fields: BrokerProtocol.Fields,
        _ participant: Participant?
    ) -> BrokerProtocol.Fields {
        if request.call.isSignOut, let session = fields["session"]?.unsignedValue {
            return fields.merging(roundFields(of: session)) { $1 }
        }
        guard case .report = request.call, let participant, device.account == nil else { return fields }
        let answer = SessionAnswer(
            session: DeviceSession(account: nil, epoch: device.epoch),
            owed: ledger.owed(by: participant, on: request.connection),
            isStrict: policy.cleanup.isStrict
        )
        return fields.merging(answer.fields) { $1 }
    }

    mutating func wait(_ request: Request, until: Duration? = nil, _ reason: Waiting.Reason) {
        waiting[request.number] = Waiting(connection: request.connection, until: until, reason: reason)
        if case .stored = reason { urge() }
    }
}
