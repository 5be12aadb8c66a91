/// One thing that happens to the device. Apps are named by their number.
enum Step: Hashable, Sendable {
    /// The app asks to sign the user in, and waits for open cleanups as long as its patience.
    case signIn(app: Int, user: String, patience: Int)
    case signOut(app: Int, user: String)
    /// An administrator signs out whoever is signed in.
    case signOutAnyone
    /// The app asks for a token of the user, who may be signed in or not.
    case token(app: Int, user: String)
    /// The app asks who is signed in, beside its following of the changes.
    case ask(app: Int)
    /// The app writes all files of whoever is on its screen.
    case work(app: Int)

    case kill(app: Int)
    /// Kills the app when it has deleted some of what it has to delete, or when it has nothing to delete any more.
    case killCleaning(app: Int)
    case start(app: Int)
    case stop(app: Int)
    case resume(app: Int)

    /// Kills the adapter; its program goes on.
    case killAdapter
    case startAdapter
    /// Kills the program of the adapter; what it has started goes on.
    case killProgram

    case killBroker
    case startBroker
    case stopBroker
    case resumeBroker
    case restartBus
    /// From here on the next sign-in waits for cleanups; the broker runs, and its disk has room.
    case becomeStrict

    /// A process of a user who has nothing to do with the device does this to the broker, again and again.
    case attack(String)
    case endAttack
    /// From here on the broker's disk has no room.
    case fillDisk
    case freeDisk

    /// Milliseconds in which nothing is done.
    case pause(Int)
    /// Until the apps that run have answered what they were told.
    case untilAnswered
    /// Until nobody owes a cleanup; all apps run, and the disk has room.
    case untilCleaned
    /// Until all apps show who is signed in; all of them run, and the disk has room.
    case untilShown
}

extension Step: CustomStringConvertible {
    var description: String {
        switch self {
        case .signIn(let app, let user, let patience): "app \(app): sign \(user) in, with \(patience) ms of patience"
        case .signOut(let app, let user): "app \(app): sign \(user) out"
        case .signOutAnyone: "administrator: sign out"
        case .token(let app, let user): "app \(app): token of \(user)"
        case .ask(let app): "app \(app): ask"
        case .work(let app): "app \(app): work"
        case .kill(let app): "kill app \(app)"
        case .killCleaning(let app): "kill app \(app) amid its cleanup"
        case .start(let app): "start app \(app)"
        case .stop(let app): "stop app \(app)"
        case .resume(let app): "resume app \(app)"
        case .killAdapter: "kill the adapter"
        case .startAdapter: "start the adapter"
        case .killProgram: "kill the adapter's program"
        case .killBroker: "kill the broker"
        case .startBroker: "start the broker"
        case .stopBroker: "stop the broker"
        case .resumeBroker: "resume the broker"
        case .restartBus: "restart the bus"
        case .becomeStrict: "the policy becomes strict"
        case .attack(let deed): "a hostile client: \(deed)"
        case .endAttack: "the hostile client ends"
        case .fillDisk: "the disk is full"
        case .freeDisk: "the disk has room"
        case .pause(let milliseconds): "pause for \(milliseconds) ms"
        case .untilAnswered: "until all is answered"
        case .untilCleaned: "until all is cleaned"
        case .untilShown: "until all show the user"
        }
    }
}
