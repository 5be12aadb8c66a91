/// What happens to the notifications for an observer while its center is suspended (CF-S3…S6). While it is not, all four
/// are the same (CF-S10).
public enum SuspensionBehavior: Int, Sendable, Hashable, CaseIterable {
    /// They are lost (CF-S3).
    case drop = 1
    /// Of each name and object the last one waits (CF-S4). The default.
    case coalesce = 2
    /// All wait, as many as the observer's ``Buffering`` has room for (CF-S5).
    case hold = 3
    /// They are delivered nevertheless, and whatever waits in the center before them (CF-S6).
    case deliverImmediately = 4
}
