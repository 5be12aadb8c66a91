import DBusTransport
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

/// How the person is asked to sign in. On iOS this describes a web view; here the program `shared-device-sign-in` asks, on the app's terminal or in a
/// window of its own, and the app sees no password; or the app asks with a dialog of its own.
public final class MSALWebviewParameters: Sendable {
    /// Asks the person, with the login hint, and returns what they gave; `nil` means that they gave up. It runs on no particular thread; a
    /// prompt that shows windows is marked `@MainActor`. What it throws ends the request.
    public typealias Prompt = @Sendable (_ loginHint: String?) async throws -> MSALCredentials?

    /// `nil`: `shared-device-sign-in` asks.
    let prompt: Prompt?
    /// Whether it asks in a window in any case.
    let showsPage: Bool
    private let settings = Locked(Settings())

    private struct Settings {
        var webviewType = MSALGlobalConfig.defaultWebviewType
        var prefersEphemeralWebBrowserSession = false
        var presentationStyle = PresentationStyle.automatic
    }

    /// Has `shared-device-sign-in` ask, on the terminal that the process was started from, or else in a window. Where there is neither, a sign-in
    /// fails with ``MSALInternalError/internalErrorNoViewController``.
    public init() {
        prompt = nil
        showsPage = false
    }

    /// Asks with `prompt`. Beyond MSAL. It serves the device's own directory alone, and no organisation's provider.
    public init(prompt: @escaping Prompt) {
        self.prompt = prompt
        showsPage = false
    }

    /// Asks with the view controller if it is an ``MSALCredentialsPrompting``. Otherwise `shared-device-sign-in` asks, in a window.
    ///
    /// The view controller is not kept alive, as in MSAL. Once it is gone, a sign-in fails with
    /// ``MSALInternalError/internalErrorNoViewController``.
    ///
    /// - Parameter authPresentationViewController: any object.
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

    // MARK: What changes nothing here

    /// The kind of web view. Changes nothing: the window is a browser's.
    public var webviewType: MSALWebviewType {
        get { settings.withLock { $0.webviewType } }
        set { settings.withLock { $0.webviewType = newValue } }
    }

    /// How the web view covers the app. Changes nothing: the window is a browser's.
    public var presentationStyle: PresentationStyle {
        get { settings.withLock { $0.presentationStyle } }
        set { settings.withLock { $0.presentationStyle = newValue } }
    }

    /// How a web view covers the app, by the names and numbers of UIKit's `UIModalPresentationStyle`.
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
        /// What the app draws.
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
