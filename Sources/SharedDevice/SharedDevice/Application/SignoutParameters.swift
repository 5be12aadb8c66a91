public import Dispatch

/// Parameters of a sign-out.
public struct SignoutParameters: Sendable {
    /// Where the completion block is called; `nil` for the main queue.
    public var completionBlockQueue: DispatchQueue?
    /// Whether the identity provider's end-session page is opened in the browser as well, which would otherwise stay signed in there.
    ///
    /// The page is the one that the device's configuration names. What comes of it is in ``SignoutResult/browser``; it never undoes the
    /// sign-out.
    public var signoutFromBrowser = false
    /// How the page is opened.
    public var browserOpener = BrowserOpener.desktop
    /// How long opening the page may take. After that it is given up; the default opener's process is killed.
    public var browserDeadline: Duration = .seconds(10)
    /// How long to wait for all apps to clean up; `nil` for not at all. The app that signs out is one of them: let another task follow
    /// ``SharedDeviceApplication/accountChanges`` meanwhile.
    public var cleanupDeadline: Duration?
    /// Hears each step of the round while it is waited for, from its opening to the last receipt, in order, on the task that signs out.
    public var onProgress: (@Sendable (CleanupReport) -> Void)?

    /// Parameters of a sign-out that waits as long as `cleanupDeadline` says.
    public init(
        completionBlockQueue: DispatchQueue? = nil,
        signoutFromBrowser: Bool = false,
        cleanupDeadline: Duration? = nil,
        onProgress: (@Sendable (CleanupReport) -> Void)? = nil
    ) {
        self.completionBlockQueue = completionBlockQueue
        self.signoutFromBrowser = signoutFromBrowser
        self.cleanupDeadline = cleanupDeadline
        self.onProgress = onProgress
    }
}

/// What a sign-out brought. The account is signed out in any case.
public struct SignoutResult: Sendable {
    /// The session that ended, by which ``SharedDeviceApplication/cleanupReport(ofSession:)`` finds its round later.
    public let session: UInt64
    /// How far the apps' cleanup was when the waiting ended: complete, or at the deadline, or when the broker stopped answering; `nil` where
    /// nothing was to be waited for, or the broker did not tell.
    public let cleanup: CleanupReport?
    /// What became of the browser's session.
    public let browser: BrowserSignout
}
