import Dispatch
import SharedDevice

struct Completion<Arguments: Sendable>: @unchecked Sendable {
    // Unchecked: MSAL's block types are not `Sendable`, and blocks may capture anything. MSAL's contract makes this
    // safe: the block is called once, on the queue that the caller has chosen, and nothing else touches it.
    private let queue: DispatchQueue
    private let block: (Arguments) -> Void

    init(_ queue: DispatchQueue?, default standard: DispatchQueue, _ block: @escaping (Arguments) -> Void) {
        self.queue = queue ?? standard
        self.block = block
    }

    /// Calls the block on its queue, and `after` once the block has returned.
    func callAsFunction(_ arguments: Arguments, after: @escaping @Sendable () -> Void = {}) {
        queue.async {
            block(arguments)
            after()
        }
    }
}

extension Result where Failure == RequestFailure {
    var value: Success? { try? get() }

    var nsError: (any Error)? {
        if case .failure(let failure) = self { failure.nsError } else { nil }
    }
}

func outcome<Success: Sendable>(
    _ body: () async throws(RequestFailure) -> Success
) async -> Result<Success, RequestFailure> {
    do throws(RequestFailure) {
        return .success(try await body())
    } catch {
        return .failure(error)
    }
}

/// Runs `body`, which calls ``SharedDeviceApplication``, and translates its error to MSAL's codes.
func mapping<Success: Sendable>(
    in request: ErrorCodes.Request = .other,
    context: RequestFailure.Context = .init(),
    _ body: () async throws(SharedDeviceError) -> Success
) async throws(RequestFailure) -> Success {
    do throws(SharedDeviceError) {
        return try await body()
    } catch {
        throw RequestFailure(error, in: request, context: context)
    }
}
