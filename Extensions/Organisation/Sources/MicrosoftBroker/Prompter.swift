import Basics
import DBus
@_spi(Extensions) package import SharedDevice
import Synchronization

/// Runs a program that asks the user to sign in. All waiting requests share one run.
package final class Prompter: Sendable {
    enum Outcome: Sendable, Equatable {
        case signedIn
        /// The sign-in failed with the program's error.
        case failed(SharedDeviceError)
        case cancelled
        case expired
    }

    struct Wish: Sendable, Equatable {
        /// The scopes that are needed afterwards, because a provider may later grant only the scopes of the sign-in
        /// (RFC 6749, section 6).
        var scopes: [String]
        /// The claims that the provider must meet. For them a signed-in user authenticates again.
        var claims: String?
    }

    /// Starts the program and waits for its end; cancelling the task ends the program.
    typealias Start = @Sendable (Wish) async -> Outcome

    private struct Waiter {
        let correlation: String
        /// The client's connection; `nil` if its presence is not watched.
        let client: String?
        let continuation: CheckedContinuation<Outcome?, Never>
    }

    private struct State {
        var nextWaiter: UInt64 = 0
        var waiting: [UInt64: Waiter] = [:]
        var run: UInt64 = 0
        /// The claims of the run in progress.
        var claims: String?
        var task: Task<Void, Never>?
    }

    private let start: Start
    private let state = Locked(State())

    init(start: @escaping Start) { self.start = start }

    package convenience init(_ program: SignInProgram) { self.init(start: Self.program(program)) }

    /// Waits until the user has signed in or declined.
    ///
    /// - Parameters:
    ///   - correlation: the client's name for its request, for ``cancel(_:)``.
    ///   - wish: a request joins a run in progress whatever its scopes, and if the claims are the same.
    ///   - client: its connection, for ``leave(_:)``.
    ///   - isGone: whether the client has already left. If it returns `false`, ``leave(_:)`` is called when the client
    ///     leaves.
    /// - Throws: `BrokerFailure` if too many requests are waiting, or the user is being asked for other claims.
    func ask(
        _ correlation: String,
        for wish: Wish,
        of client: String? = nil,
        isGone: @escaping @Sendable () -> Bool = { false }
    ) async throws(BrokerFailure) -> Outcome {
        let outcome: Outcome? = await withCheckedContinuation { continuation in
            let (isTaken, hasLeft) = state.withLock { state -> (Bool, Bool) in
                if isGone() { return (false, true) }
                guard state.waiting.count < BrokerContract.interactiveRequests,
                    state.task == nil || wish.claims == nil || wish.claims == state.claims
                else { return (false, false) }
                state.nextWaiter += 1
                state.waiting[state.nextWaiter] = Waiter(
                    correlation: correlation,
                    client: client,
                    continuation: continuation
                )
                guard state.task == nil else { return (true, false) }
                state.run += 1
                state.claims = wish.claims
                let run = state.run
                state.task = Task { [weak self, start] in self?.end(run, await start(wish)) }
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
            // This run was cancelled. The current waiters belong to a newer run.
            guard state.run == run, state.task != nil else { return [] }
            defer { state.waiting = [:] }
            state.task = nil
            return state.waiting.values.map(\.continuation)
        }
        for continuation in waiting { continuation.resume(returning: outcome) }
    }

    /// Ends the wait of requests with this correlation ID, and the program if no other request waits.
    func cancel(_ correlation: String) { endWait { $0.correlation == correlation } }

    /// Ends the wait of all requests of a client that has left the bus, to free their places.
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
    /// Asks with `shared-device-sign-in`. Ends the program with SIGTERM, so that it closes its browser.
    ///
    /// - Parameter patience: returns after the user's time limit, which covers all prompts of one run.
    static func program(
        _ program: SignInProgram,
        patience: @escaping @Sendable () async throws -> Void = { try await Task.sleep(for: .seconds(600)) }
    ) -> Start {
        { wish in
            let asking = Task { () -> Outcome in
                var program = program
                program.scopes = wish.scopes
                program.claims = wish.claims
                program.asksAgain = wish.claims != nil
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
