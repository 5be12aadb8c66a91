/// Which accounts to list. Each value that is given must fit.
public final class MSALAccountEnumerationParameters: MSALParameters {
    /// ``MSALAccount/identifier``; `nil` for any.
    public let identifier: String?
    /// ``MSALAccount/username``, in whatever case; `nil` for any.
    public let username: String?

    /// All accounts.
    public override init() {
        identifier = nil
        username = nil
        super.init()
    }

    /// The account of this identity.
    public init(identifier: String) {
        self.identifier = identifier
        username = nil
        super.init()
    }

    /// The account of this identity and name.
    public init(identifier: String?, username: String) {
        self.identifier = identifier
        self.username = username
        super.init()
    }
}
