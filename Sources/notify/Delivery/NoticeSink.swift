/// Where a registration's notices go. Called on the reading thread, or that of a post to a `self.` name, and never with a lock held.
protocol NoticeSink: AnyObject, Sendable {
    /// Tells that the token's name was posted.
    func notify(_ token: CInt)
    /// Ends the service for this token, once.
    func end(_ token: CInt)
}
