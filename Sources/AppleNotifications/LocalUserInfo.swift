/// A dictionary on its way from a local post to its observers: the very object (CF-U3).
///
/// Unchecked, because it does not leave the poster's thread: a local center calls its observers within the post.
struct LocalUserInfo: @unchecked Sendable {
    let dictionary: CFDictionary
}
