import FoundationEssentials

/// The effect of a sign-out on the browser's session. The account is signed out of the device in every case.
public enum BrowserSignout: Sendable, Hashable {
    /// The app did not request a browser sign-out.
    case notRequested
    /// The browser has opened the end-session page. The page shows whether the identity provider ended its session.
    case opened
    /// The device's configuration names no end-session page.
    case notConfigured
    /// The page could not be opened, for this reason; the person may still be signed in in the browser.
    case failed(String)
    /// The page did not open before ``SignoutParameters/browserDeadline``.
    case timedOut
}

/// A way to open a page in the browser.
public struct BrowserOpener: Sendable {
    /// Opens the page at this address and returns when it is open, or throws. It is called in its own task, which is
    /// cancelled when time runs out.
    public var open: @Sendable (_ address: String) async throws -> Void

    /// Creates an opener from a closure.
    public init(_ open: @escaping @Sendable (_ address: String) async throws -> Void) { self.open = open }

    /// Runs `xdg-open` with the address, without a shell. The process is killed when time runs out.
    public static let desktop = BrowserOpener { address in
        try await HelperProcess.run("xdg-open", [address])
    }
}

extension SharedDeviceApplication {
    func signOutFromBrowser(_ address: String?, _ parameters: SignoutParameters) async -> BrowserSignout {
        guard parameters.signoutFromBrowser else { return .notRequested }
        guard let address else { return .notConfigured }
        guard EndSessionPage.isAllowed(address) else {
            return .failed(
                "the end-session page is neither https nor http on this machine; correct the device's endSessionURL"
            )
        }
        let (results, continuation) = AsyncStream.makeStream(of: BrowserSignout.self)
        let opening = Task {
            do {
                try await parameters.browserOpener.open(address)
                continuation.yield(.opened)
            } catch {
                continuation.yield(.failed("\(error)"))
            }
        }
        let alarm = Task {
            guard (try? await Task.sleep(for: parameters.browserDeadline)) != nil else { return }
            continuation.yield(.timedOut)
        }
        defer {
            opening.cancel()
            alarm.cancel()
        }
        // An opener that ignores its cancellation continues in the background.
        for await result in results { return result }
        return .timedOut
    }
}

enum EndSessionPage {
    /// Only web addresses are allowed: browsers open other kinds too, and the address comes from a file.
    static func isAllowed(_ address: String) -> Bool {
        guard address.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), let url = URL(string: address),
            let host = url.host(percentEncoded: false), !host.isEmpty
        else { return false }
        switch url.scheme?.lowercased() {
        case "https": return true
        // The same rule as in the broker for `endSessionURL`: traffic within this machine cannot be intercepted on a
        // network.
        case "http": return ["localhost", "127.0.0.1", "::1", "[::1]"].contains(host.lowercased())
        default: return false
        }
    }
}
