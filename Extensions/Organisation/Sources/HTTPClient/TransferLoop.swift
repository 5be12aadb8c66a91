import Basics
import CCurl
import DBus
import Synchronization

/// The thread that runs all transfers, and its queue. The thread keeps the loop alive.
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
    /// Unsafe: other threads only call `curl_multi_wakeup`, which libcurl allows. `deinit` frees it after the thread
    /// has ended. `nil` if libcurl has no memory.
    private nonisolated(unsafe) let multi: UnsafeMutableRawPointer?

    /// Initialises libcurl before its first use, exactly once.
    private static let isLibraryReady = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

    init(capacity: Int) {
        self.capacity = capacity
        multi = Self.isLibraryReady ? curl_multi_init() : nil
        // The most idle connections that are kept open for later requests.
        if let multi { _ = CCurl_setMultiNumber(multi, CURLMOPT_MAXCONNECTS, 4) }
    }

    deinit { if let multi { curl_multi_cleanup(multi) } }

    // MARK: From any thread

    func nextIdentifier() -> UInt64 {
        state.withLock {
            $0.lastIdentifier += 1
            return $0.lastIdentifier
        }
    }

    /// Starts a transfer, which then completes exactly once. Returns `false` if too many are in flight, or if the
    /// system grants no thread. The transfer then never completes.
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

    /// Ends a transfer that is in flight. Other identifiers are ignored.
    func cancel(_ identifier: UInt64) {
        let isOfUse = state.withLock { state in
            guard state.underWay > 0 else { return false }
            state.cancelled.insert(identifier)
            return true
        }
        if isOfUse, let multi { curl_multi_wakeup(multi) }
    }

    /// Ends the thread. No transfer is in flight, because a caller that waits for one keeps the client alive.
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
            // Waits for network activity, a time limit or a wake-up.
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
