import Basics
import DBus
import Synchronization

/// A user name and a password, as a person enters them.
public struct MSALCredentials: Sendable {
    /// The name to sign in with.
    public let username: String
    /// The password. It is sent to the broker over the bus; on a session bus, other processes of the same user can read
    /// it there.
    public let password: String

    /// Credentials with this name and password.
    public init(username: String, password: String) {
        self.username = username
        self.password = password
    }
}

/// An object that asks a person for a user name and a password. Beyond MSAL.
///
/// On iOS a view controller says where the web view appears. Here the corresponding class says how the person is asked:
/// let it conform, and pass it to ``MSALWebviewParameters/init(authPresentationViewController:)`` as before.
@MainActor
public protocol MSALCredentialsPrompting: AnyObject {
    /// Asks the person and returns the entered credentials, or `nil` if the person cancelled. An error ends the
    /// request.
    ///
    /// - Parameter loginHint: the name to offer.
    func credentials(forLoginHint loginHint: String?) async throws -> MSALCredentials?
}

/// How the person is asked to sign in.
///
/// On iOS this describes a web view. Here the program `shared-device-sign-in` asks, on the app's terminal or in a
/// window, and the app sees no password. Alternatively the app asks with its own dialog.
public final class MSALWebviewParameters: Sendable {
    /// Asks the person, given the login hint, and returns the entered credentials, or `nil` if the person cancelled. It
    /// runs on no particular thread; mark a prompt that shows windows `@MainActor`. An error ends the request.
    public typealias Prompt = @Sendable (_ loginHint: String?) async throws -> MSALCredentials?

    /// `nil` if `shared-device-sign-in` asks.
    let prompt: Prompt?
    /// Whether `shared-device-sign-in` opens a window even if there is a terminal.
    let showsPage: Bool
    private let settings = Locked(
        (webview: MSALGlobalConfig.defaultWebviewType, isEphemeral: false, style: PresentationStyle.automatic)
    )

    /// Lets `shared-device-sign-in` ask, on the terminal that the process was started from, or else in a window. If
    /// there is neither, a sign-in fails with ``MSALInternalError/internalErrorNoViewController``.
    public init() {
        prompt = nil
        showsPage = false
    }

    /// Asks with `prompt`. Beyond MSAL. It works only with the device's own directory, not with an organisation's
    /// provider.
    public init(prompt: @escaping Prompt) {
        self.prompt = prompt
        showsPage = false
    }

    /// Asks with the view controller if it is an ``MSALCredentialsPrompting``. Otherwise `shared-device-sign-in` opens
    /// a window. The view controller, which may be any object, is not kept alive, as in MSAL. Once it is gone, a
    /// sign-in fails with ``MSALInternalError/internalErrorNoViewController``.
    public init(authPresentationViewController: AnyObject) {
        showsPage = true
        guard let prompting = authPresentationViewController as? any MSALCredentialsPrompting else {
            prompt = nil
            return
        }
        let reference = PromptingReference(prompting)
        prompt = { try await reference.ask(loginHint: $0) }
    }

    /// The old spelling of ``init(authPresentationViewController:)``.
    public convenience init(parentViewController: AnyObject) {
        self.init(authPresentationViewController: parentViewController)
    }

    // MARK: Settings without effect

    /// The kind of web view. Changes nothing: the window is a browser's.
    public var webviewType: MSALWebviewType {
        get { settings.withLock { $0.webview } }
        set { settings.withLock { $0.webview = newValue } }
    }

    /// How the web view covers the app. Changes nothing: the window is a browser's.
    public var presentationStyle: PresentationStyle {
        get { settings.withLock { $0.style } }
        set { settings.withLock { $0.style = newValue } }
    }

    /// How a web view covers the app, with the names and raw values of UIKit's `UIModalPresentationStyle`.
    public enum PresentationStyle: Int, Sendable {
        /// The system's choice.
        case automatic = -2
        /// None.
        case none = -1
        /// The whole screen.
        case fullScreen = 0
        /// Most of the screen.
        case pageSheet
        /// The middle of the screen.
        case formSheet
        /// The view of another controller.
        case currentContext
        /// Drawn by the app.
        case custom
        /// The whole screen, over the views below.
        case overFullScreen
        /// The view of another controller, over its content.
        case overCurrentContext
        /// A pop-over.
        case popover
    }

    /// Whether the browser forgets the sign-in. Changes nothing: it always does.
    public var prefersEphemeralWebBrowserSession: Bool {
        get { settings.withLock { $0.isEphemeral } }
        set { settings.withLock { $0.isEphemeral = newValue } }
    }

    /// The app's own web view. Changes nothing: it is not kept, and reads as `nil`.
    public var customWebview: AnyObject? {
        get { nil }
        set {}
    }
}

/// A weak reference to the view controller that asks.
private final class PromptingReference: @unchecked Sendable {
    // Unchecked: only code of the main actor, to which the protocol belongs, touches the object.
    private weak let object: (any MSALCredentialsPrompting)?

    init(_ object: any MSALCredentialsPrompting) { self.object = object }

    @MainActor
    func ask(loginHint: String?) async throws -> MSALCredentials? {
        guard let object else {
            let description = "could not ask for name and password: the view controller for the prompt is gone"
            throw NSError(.internal(.internalErrorNoViewController), description)
        }
        return try await object.credentials(forLoginHint: loginHint)
    }
}
