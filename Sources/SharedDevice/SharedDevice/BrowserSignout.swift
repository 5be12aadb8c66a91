import FoundationEssentials

/// What a sign-out did to the browser's session. It signs the account out of the device in any case.
public enum BrowserSignout: Sendable, Hashable {
    /// The sign-out did not ask for it.
    case notRequested
    /// The browser has the end-session page. It shows whether the identity provider ended its session there.
    case opened
    /// The device's configuration names no end-session page.
    case notConfigured
    /// The page could not be opened, for this reason; the person may still be signed in there.
    case failed(String)
    /// The page was not open by ``SignoutParameters/browserDeadline``.
    case timedOut
}

/// A way to open a page in the browser.
public struct BrowserOpener: Sendable {
    /// Opens the page at this address, and returns when that is done; throws if that fails. It is called in its own task, which is cancelled
    /// when time runs out.
    public var open: @Sendable (_ address: String) async throws -> Void

    /// The app's own way to open a page.
    public init(_ open: @escaping @Sendable (_ address: String) async throws -> Void) { self.open = open }

    /// The desktop's way: runs `xdg-open` with the address, without a shell. When time runs out, the process is killed.
    public static let desktop = BrowserOpener { address in
        try await HelperProcess.run("xdg-open", [address])
    }
}

extension SharedDeviceApplication {
    /// Opens the end-session page, and gives up when time runs out.
    func signOutFromBrowser(_ address: String?, _ parameters: SignoutParameters) async -> BrowserSignout {
        guard parameters.signoutFromBrowser else { return .notRequested }
        guard let address else { return .notConfigured }
        guard EndSessionPage.isAllowed(address) else {
            return .failed("the configured page is neither https nor http on this machine")
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
        // An opener that ignores its cancellation goes on; nobody waits for it.
        for await result in results { return result }
        return .timedOut
    }
}

/// Which pages a browser is sent to.
enum EndSessionPage {
    /// Browsers open more than web pages, and the address comes from a file: only web addresses are let through.
    static func isAllowed(_ address: String) -> Bool {
        guard address.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), let url = URL(string: address),
            let host = url.host(percentEncoded: false), !host.isEmpty
        else { return false }
        switch url.scheme?.lowercased() {
        case "https": return true
        // As the broker reads `endSessionURL`: on this machine nobody listens between.
        case "http": return ["localhost", "127.0.0.1", "::1", "[::1]"].contains(host.lowercased())
        default: return false
        }
    }
}
