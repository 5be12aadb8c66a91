import DBusTransport
import Dispatch
import Glibc
import Synchronization

/// Name and password, as a person gives them.
public struct MSALCredentials: Sendable {
    /// The name to sign in with.
    public let username: String
    /// The password. It travels to the broker over the bus; on a session bus, other processes of the same user can read it there.
    public let password: String

    /// Name and password.
    public init(username: String, password: String) {
        self.username = username
        self.password = password
    }
}

/// An object that asks a person for name and password. Beyond MSAL.
///
/// On iOS a view controller says where the web view appears. Here the class that stands for it says how the person is asked: let it conform,
/// and the code that passes it to ``MSALWebviewParameters/init(authPresentationViewController:)`` stays as it is.
@MainActor
public protocol MSALCredentialsPrompting: AnyObject {
    /// Asks the person, and returns what they gave; `nil` means that they gave up. What it throws ends the request.
    ///
    /// - Parameter loginHint: the name to offer.
    func credentials(forLoginHint loginHint: String?) async throws -> MSALCredentials?
}

/// How the person is asked for name and password. On iOS this describes a web view; here the app asks with a dialog of its own, or on the
/// terminal.
public final class MSALWebviewParameters: Sendable {
    /// Asks the person, with the login hint, and returns what they gave; `nil` means that they gave up. It runs on no particular thread; a
    /// prompt that shows windows is marked `@MainActor`. What it throws ends the request.
    public typealias Prompt = @Sendable (_ loginHint: String?) async throws -> MSALCredentials?

    let prompt: Prompt
    private let settings = Locked(Settings())

    private struct Settings {
        var webviewType = MSALGlobalConfig.defaultWebviewType
        var prefersEphemeralWebBrowserSession = false
    }

    /// Asks on the terminal that the process was started from. In a process without one, a sign-in fails with
    /// ``MSALInternalError/internalErrorNoViewController``.
    public init() { prompt = Self.askOnTerminal }

    /// Asks with `prompt`. Beyond MSAL.
    public init(prompt: @escaping Prompt) { self.prompt = prompt }

    /// Asks with the view controller if it is an ``MSALCredentialsPrompting``, and on the terminal otherwise, as ``init()``.
    ///
    /// The view controller is not kept alive, as in MSAL. Once it is gone, a sign-in fails with
    /// ``MSALInternalError/internalErrorNoViewController``.
    ///
    /// - Parameter authPresentationViewController: any object.
    public init(authPresentationViewController: AnyObject) {
        guard let prompting = authPresentationViewController as? any MSALCredentialsPrompting else {
            prompt = Self.askOnTerminal
            return
        }
        let reference = PromptingReference(prompting)
        prompt = { try await reference.ask(loginHint: $0) }
    }

    /// The old spelling of ``init(authPresentationViewController:)``.
    public convenience init(parentViewController: AnyObject) {
        self.init(authPresentationViewController: parentViewController)
    }

    private static let askOnTerminal: Prompt = { try await TerminalPrompt().ask(loginHint: $0) }

    // MARK: What changes nothing here

    /// The kind of web view. Changes nothing: there is no web view.
    public var webviewType: MSALWebviewType {
        get { settings.withLock { $0.webviewType } }
        set { settings.withLock { $0.webviewType = newValue } }
    }

    /// Whether the browser forgets the sign-in. Changes nothing: no browser is involved.
    public var prefersEphemeralWebBrowserSession: Bool {
        get { settings.withLock { $0.prefersEphemeralWebBrowserSession } }
        set { settings.withLock { $0.prefersEphemeralWebBrowserSession = newValue } }
    }

    /// A web view of the app's own. Changes nothing: it is not kept, and reads as `nil`.
    public var customWebview: AnyObject? {
        get { nil }
        set {}
    }
}

/// A view controller that asks, for as long as somebody else keeps it.
private final class PromptingReference: @unchecked Sendable {
    // Unchecked: only code of the main actor, to which the protocol belongs, touches the object.
    private weak let object: (any MSALCredentialsPrompting)?

    init(_ object: any MSALCredentialsPrompting) { self.object = object }

    @MainActor
    func ask(loginHint: String?) async throws -> MSALCredentials? {
        guard let object else {
            throw RequestFailure(
                .internal(.internalErrorNoViewController),
                "could not ask for name and password: the view controller that was to ask is gone"
            )
        }
        return try await object.credentials(forLoginHint: loginHint)
    }
}

/// Asks for name and password on a terminal. The password is not shown.
struct TerminalPrompt: Sendable {
    /// The terminal's file; by default the terminal of the process.
    var path = "/dev/tty"

    /// Returns what the person typed; `nil` means that they ended the input or left the name empty. The wait blocks a thread of its own, and
    /// none of Swift's.
    ///
    /// - Throws: ``RequestFailure`` where there is no terminal.
    func ask(loginHint: String?) async throws -> MSALCredentials? {
        try await withCheckedThrowingContinuation { continuation in
            DispatchQueue(label: "org.notifycenter.MSAL.prompt").async {
                continuation.resume(with: Result { try self.askAndWait(loginHint: loginHint) })
            }
        }
    }

    private func askAndWait(loginHint: String?) throws(RequestFailure) -> MSALCredentials? {
        let terminal = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard terminal >= 0 else {
            throw RequestFailure(
                .internal(.internalErrorNoViewController),
                "could not ask for name and password: there is no terminal (\(path): \(String(cString: strerror(errno)))). "
                    + "Give MSALWebviewParameters a prompt, for instance a dialog of the app"
            )
        }
        defer { close(terminal) }
        write(loginHint.map { "Name [\($0)]: " } ?? "Name: ", to: terminal)
        guard let typed = line(from: terminal) else { return nil }
        let name = typed.isEmpty ? loginHint ?? "" : typed
        guard !name.isEmpty else { return nil }
        guard let password = hidden(terminal, { asked(terminal) }) else { return nil }
        return MSALCredentials(username: name, password: password)
    }

    private func asked(_ terminal: CInt) -> String? {
        write("Password: ", to: terminal)
        defer { write("\n", to: terminal) }
        return line(from: terminal)
    }

    /// Runs `body`. Meanwhile the terminal does not show what is typed.
    private func hidden(_ terminal: CInt, _ body: () -> String?) -> String? {
        var before = termios()
        guard tcgetattr(terminal, &before) == 0 else { return body() }
        var silent = before
        silent.c_lflag &= ~tcflag_t(ECHO)
        tcsetattr(terminal, TCSAFLUSH, &silent)
        defer { tcsetattr(terminal, TCSAFLUSH, &before) }
        return body()
    }

    /// Reads a line, without its end; `nil` at the end of the input.
    private func line(from terminal: CInt) -> String? {
        var bytes: [UInt8] = []
        while true {
            var byte: UInt8 = 0
            let count = read(terminal, &byte, 1)
            if count < 0, errno == EINTR { continue }
            guard count == 1 else { return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self) }
            guard byte != UInt8(ascii: "\n") else { return String(decoding: bytes, as: UTF8.self) }
            bytes.append(byte)
        }
    }

    private func write(_ text: String, to terminal: CInt) {
        // Even where the prompt cannot be shown, the answer can be read.
        _ = Array(text.utf8).withUnsafeBytes { Glibc.write(terminal, $0.baseAddress, $0.count) }
    }
}
