import CCurl
import DBusTransport
import Synchronization

/// The thread that all transfers run on, and what others tell it. The thread keeps it alive.
final class TransferLoop: Sendable {
    private struct State {
        var submitted: [Transfer] = []
        var cancelled: Set<UInt64> = []
        /// Submitted and not yet ended.
        var underWay = 0
        var isStarted = false
        var isClosed = false
        var lastIdentifier: UInt64 = 0
    }

    private let state = Locked(State())
    private let capacity: Int
    /// Unsafe: from other threads it is only woken, which libcurl allows; it ends in `deinit`, when the thread has ended. `nil` where libcurl has no
    /// memory for it.
    private nonisolated(unsafe) let multi: UnsafeMutableRawPointer?

    /// libcurl's own state, before its first use; a `static let` is made once, whoever asks first.
    private static let isLibraryReady = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

    init(capacity: Int) {
        self.capacity = capacity
        multi = Self.isLibraryReady ? curl_multi_init() : nil
        // Connections that are kept open for the next request.
        if let multi { _ = CCurl_setMultiNumber(multi, CURLMOPT_MAXCONNECTS, 4) }
    }

    deinit { if let multi { curl_multi_cleanup(multi) } }

    // MARK: From any thread

    /// A number that no other transfer has.
    func nextIdentifier() -> UInt64 {
        state.withLock {
            $0.lastIdentifier += 1
            return $0.lastIdentifier
        }
    }

    /// Begins a transfer, which then completes exactly once.
    ///
    /// - Returns: `false` where too many are under way, or where the system grants no thread; the transfer does not complete then.
    func submit(_ transfer: Transfer) -> Bool {
        guard let multi else { return false }
        let isTaken = state.withLock { state in
            guard state.underWay < capacity else { return false }
            if !state.isStarted { state.isStarted = QuietThread.start("http") { [self] in run() } != nil }
            guard state.isStarted else { return false }
            state.submitted.append(transfer)
            state.underWay += 1
            return true
        }
        if isTaken { curl_multi_wakeup(multi) }
        return isTaken
    }

    /// Ends a transfer that is under way; for another number nothing happens.
    func cancel(_ identifier: UInt64) {
        let isOfUse = state.withLock { state in
            guard state.underWay > 0 else { return false }
            state.cancelled.insert(identifier)
            return true
        }
        if isOfUse, let multi { curl_multi_wakeup(multi) }
    }

    /// Ends the thread. Nothing is under way: who waits for a transfer keeps the client alive.
    func close() {
        state.withLock { $0.isClosed = true }
        if let multi { curl_multi_wakeup(multi) }
    }

    // MARK: On the thread

    private func run() {
        guard let multi else { return }
        var transfers: [UnsafeMutableRawPointer: Transfer] = [:]
        while true {
            let (submitted, cancelled, isClosed) = state.withLock { state in
                defer { (state.submitted, state.cancelled) = ([], []) }
                return (state.submitted, state.cancelled, state.isClosed)
            }
            if isClosed, submitted.isEmpty, transfers.isEmpty { return }
            for transfer in submitted {
                if let handle = transfer.handle, curl_multi_add_handle(multi, handle) == CURLM_OK {
                    transfers[handle] = transfer
                } else {
                    end(transfer, .brokenOff("libcurl has no memory"))
                }
            }
            for (handle, transfer) in transfers where cancelled.contains(transfer.identifier) {
                remove(handle, from: &transfers)
                end(transfer, .cancelled)
            }
            var running: CInt = 0
            let code = curl_multi_perform(multi, &running)
            var result = CURLE_OK
            while let handle = CCurl_nextEnded(multi, &result) {
                guard let transfer = transfers[handle] else { continue }
                remove(handle, from: &transfers)
                state.withLock { $0.underWay -= 1 }
                transfer.complete(result)
            }
            if code != CURLM_OK {
                for (handle, transfer) in transfers {
                    remove(handle, from: &transfers)
                    end(transfer, .brokenOff(String(cString: curl_multi_strerror(code))))
                }
            }
            // Until something arrives, a time limit is over or somebody wakes it.
            curl_multi_poll(multi, nil, 0, 60_000, nil)
        }
    }

    private func remove(_ handle: UnsafeMutableRawPointer, from transfers: inout [UnsafeMutableRawPointer: Transfer]) {
        curl_multi_remove_handle(multi, handle)
        transfers[handle] = nil
    }

    private func end(_ transfer: Transfer, _ reason: HTTPError.Reason) {
        state.withLock { $0.underWay -= 1 }
        transfer.fail(reason)
    }
}
