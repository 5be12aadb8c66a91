/// Where a registration's notices go. Called on the reading thread, on that of a post to a `self.` name or of a resumption, or, for a name that
/// not everybody may post, on any once the bus has told of its sender; never with the client's lock held.
protocol NoticeSink: AnyObject, Sendable {
    /// Tells that the token's name was posted.
    func notify(_ token: CInt)
    /// Ends the service for this token, once.
    func end(_ token: CInt)
}
