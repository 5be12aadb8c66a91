import DBusTransport
import SharedDevice
import Synchronization

/// Has a person asked to sign in, by a program of its own: one at a time for all requests that wait for it.
final class Prompter: Sendable {
    /// What became of it.
    enum Outcome: Sendable, Equatable {
        /// Somebody has signed in.
        case signedIn
        /// Nobody has: what the program says of it.
        case failed(SharedDeviceError)
        /// The request was cancelled.
        case cancelled
        /// It took too long.
        case expired
    }

    /// Starts the program and waits for its end; a task that is cancelled ends it. It is given the scopes that are wanted afterwards: a provider may
    /// grant later only what the sign-in has asked for (RFC 6749, section 6).
    typealias Start = @Sendable (_ scopes: [String]) async -> Outcome

    private struct Waiter {
        let correlation: String
        /// The connection of the client; `nil` where nobody looks whether it is there.
        let client: String?
        let continuation: CheckedContinuation<Outcome?, Never>
    }

    private struct State {
        var nextWaiter: UInt64 = 0
        var waiting: [UInt64: Waiter] = [:]
        var run: UInt64 = 0
        var task: Task<Void, Never>?
    }

    private let start: Start
    private let state = Locked(State())

    init(start: @escaping Start) { self.start = start }

    /// Waits until the person has signed in, or does not want to.
    ///
    /// - Parameters:
    ///   - correlation: the client's name for its request, for ``cancel(_:)``.
    ///   - scopes: what is wanted afterwards. A request that finds the person asked already waits for that, whatever it wants.
    ///   - client: its connection, for ``leave(_:)``.
    ///   - isGone: whether that has left already. Where it says no, ``leave(_:)`` is called afterwards.
    /// - Throws: `BrokerFailure` where too many wait already.
    func ask(
        _ correlation: String,
        for scopes: [String],
        of client: String? = nil,
        isGone: @escaping @Sendable () -> Bool = { false }
    ) async throws(BrokerFailure) -> Outcome {
        let outcome: Outcome? = await withCheckedContinuation { continuation in
            let (isTaken, hasLeft) = state.withLock { state -> (Bool, Bool) in
                if isGone() { return (false, true) }
                guard state.waiting.count < BrokerContract.interactiveRequests else { return (false, false) }
                state.nextWaiter += 1
                state.waiting[state.nextWaiter] = Waiter(
                    correlation: correlation,
                    client: client,
                    continuation: continuation
                )
                guard state.task == nil else { return (true, false) }
                state.run += 1
                let run = state.run
                state.task = Task { [weak self, start] in self?.end(run, await start(scopes)) }
                return (true, false)
            }
            if !isTaken { continuation.resume(returning: hasLeft ? .cancelled : nil) }
        }
        guard let outcome else {
            throw BrokerFailure(.transientError, "too many sign-ins wait for a person; try again later")
        }
        return outcome
    }

    private func end(_ run: UInt64, _ outcome: Outcome) {
        let waiting = state.withLock { state -> [CheckedContinuation<Outcome?, Never>] in
            // Of one that was cancelled nobody waits for anything; those that wait are another's.
            guard state.run == run, state.task != nil else { return [] }
            defer { state.waiting = [:] }
            state.task = nil
            return state.waiting.values.map(\.continuation)
        }
        for continuation in waiting { continuation.resume(returning: outcome) }
    }

    /// Ends the wait of the requests with this name, and the program where no other waits for it.
    func cancel(_ correlation: String) { endWait { $0.correlation == correlation } }

    /// The same for all requests of a client that has left the bus: their places are another's.
    func leave(_ client: String) { endWait { $0.client == client } }

    private func endWait(where isMeant: @Sendable (Waiter) -> Bool) {
        let (waiting, task) = state.withLock { state -> ([CheckedContinuation<Outcome?, Never>], Task<Void, Never>?) in
            let mine = state.waiting.filter { isMeant($0.value) }
            for number in mine.keys { state.waiting[number] = nil }
            guard !mine.isEmpty, state.waiting.isEmpty else { return (mine.values.map(\.continuation), nil) }
            defer { state.task = nil }
            return (mine.values.map(\.continuation), state.task)
        }
        task?.cancel()
        for continuation in waiting { continuation.resume(returning: .cancelled) }
    }
}

extension Prompter {
    /// Asks by `shared-device-sign-in`. It is asked to end, so that it takes its browser along.
    ///
    /// - Parameter patience: waits for as long as a person may take in all, also where they are asked twice.
    static func program(
        _ program: SignInProgram,
        patience: @escaping @Sendable () async throws -> Void = { try await Task.sleep(for: .seconds(600)) }
    ) -> Start {
        { scopes in
            let asking = Task { () -> Outcome in
                var program = program
                program.scopes = scopes
                do throws(SharedDeviceError) {
                    _ = try await program.runInAnyCase(attempted: "ask a person to sign in")
                    return .signedIn
                } catch {
                    return .failed(error)
                }
            }
            let isLate = Locked(false)
            let deadline = Task {
                try await patience()
                isLate.withLock { $0 = true }
                asking.cancel()
            }
            let outcome = await withTaskCancellationHandler {
                await asking.value
            } onCancel: {
                asking.cancel()
            }
            deadline.cancel()
            return outcome != .signedIn && isLate.withLock { $0 } ? .expired : outcome
        }
    }
}
