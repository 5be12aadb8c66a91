import ArgumentParser
import Basics
import CommandSupport
import DBus
import NotifyCenter
import notify

struct PostCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "post",
        abstract: "Posts a name.",
        discussion: "Posts to the Darwin center, which carries names only, unless --distributed is given."
    )

    @Argument(help: "The name to post.", completion: .registeredNames)
    var name: String

    @Flag(help: "Post to the distributed center, which carries an object and a userInfo too.")
    var distributed = false

    @Option(help: ArgumentHelp("The object; only with --distributed.", valueName: "text"))
    var object: String?

    @Option(
        name: .customLong("userinfo"),
        help: ArgumentHelp("The userInfo, a JSON object without null; only with --distributed.", valueName: "json"),
        transform: Self.userInfo
    )
    var userInfo: UserInfo?

    @OptionGroup var bus: BusOptions

    func validate() throws {
        guard distributed || (object == nil && userInfo == nil) else {
            throw ValidationError("--object and --userinfo need --distributed: the Darwin center carries names only.")
        }
    }

    func run() throws {
        try carryOut { () throws(Failure) in
            if distributed {
                try onBus { () throws(DBusError) in
                    let center = DistributedNotifyCenter.default
                    try center.post(NotificationName(name), object: object, userInfo: userInfo)
                }
            } else {
                // notify(3) knows who may post a name, and makes notifyd post reserved names.
                let status = notify_post(name)
                guard status == UInt32(NOTIFY_STATUS_OK) else { throw Failure("post", name, status: status) }
            }
        }
    }

    private static func userInfo(_ text: String) throws -> UserInfo {
        // The post itself reports the limit of nesting.
        let limits = JSONLimits(size: .max, depth: 64, values: .max)
        do {
            let value = try PropertyListValue(parsing: Array(text.utf8), limits: limits)
            guard case .dictionary(let userInfo) = value else { throw ValidationError("it is not a JSON object") }
            return userInfo
        } catch let error as JSONError {
            throw ValidationError("\(error)")
        }
    }
}
