import Dispatch
import SharedDevice

/// A completion block on its way to its queue.
struct Completion<Arguments: Sendable>: @unchecked Sendable {
    // Unchecked: MSAL's block types are not `Sendable`, and apps hand over what they captured. The block is called once, on the
    // queue that the caller has chosen, and nothing else touches it: that is MSAL's contract.
    private let queue: DispatchQueue
    private let block: (Arguments) -> Void

    init(_ queue: DispatchQueue?, default standard: DispatchQueue, _ block: @escaping (Arguments) -> Void) {
        self.queue = queue ?? standard
        self.block = block
    }

    /// Calls the block on its queue; `after` there when it has returned.
    func callAsFunction(_ arguments: Arguments, after: @escaping @Sendable () -> Void = {}) {
        queue.async {
            block(arguments)
            after()
        }
    }
}

extension Result where Failure == RequestFailure {
    /// The value; `nil` for an error.
    var value: Success? { try? get() }

    /// What the completion blocks get.
    var nsError: (any Error)? {
        if case .failure(let failure) = self { failure.nsError } else { nil }
    }
}

/// The outcome of `body`, and with a typed error, as a value.
func outcome<Success: Sendable>(
    _ body: () async throws(RequestFailure) -> Success
) async -> Result<Success, RequestFailure> {
    do throws(RequestFailure) {
        return .success(try await body())
    } catch {
        return .failure(error)
    }
}

/// Runs `body`, which asks the shared device, and gives its error MSAL's codes.
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
