import NotifyCenter
import NotifydProtocol

/// One thing to do.
enum Command: Equatable {
    case post(Post)
    case watch(Watch)
    case getState(String)
    case setState(String, UInt64)
    /// Who is registered on the bus, for names that begin so.
    case list(prefix: String)
    /// All posts of these names; of all, if there are none.
    case monitor([String])
    /// What notifyd knows, into a file or to standard output.
    case dump(path: String?)
}

/// A post, and the pause after it.
struct Post: Equatable {
    enum Content: Equatable {
        case darwin
        case distributed(object: String?, userInfo: UserInfo?)
    }

    var name: String
    var content: Content
    /// Posts in a row are told apart by their watchers, as on Darwin.
    var pause: Duration
}

/// A registration, and how often it reports.
struct Watch: Equatable {
    enum Source: Equatable {
        case darwin(Kind)
        /// `nil` for any object.
        case distributed(object: String?)
    }

    var name: String
    /// `nil` for ever.
    var count: Int?
    var source: Source
}

/// How a registration learns of posts: which function of notify(3) makes it.
enum Kind: Equatable {
    case port
    case file
    case check
    case plain
    case dispatch
    case signal(CInt)

    /// As it is printed.
    var word: String {
        let kind: RegistrationKind =
            switch self {
            case .port: .port
            case .file: .file
            case .check: .check
            case .plain: .plain
            case .dispatch: .dispatch
            case .signal: .signal
            }
        return kind.rawValue
    }
}
