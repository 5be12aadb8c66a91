/// One step of a device. Apps are numbered. Reports show a step as it is written in code.
enum Step: Hashable, Sendable {
    /// The app requests a sign-in of the user, and waits for pending cleanups up to its patience.
    case signIn(app: Int, user: String, patience: Int)
    case signOut(app: Int, user: String)
    case signOutAnyone
    /// The app requests a token of the user, whether or not the user is signed in.
    case token(app: Int, user: String)
    /// The app asks for the current account, in addition to following its changes.
    case ask(app: Int)
    /// The app writes all files of the user on its screen.
    case work(app: Int)

    case kill(app: Int)
    /// Kills the app when it has deleted a part of its data, or when it has nothing to delete.
    case killCleaning(app: Int)
    case start(app: Int)
    case stop(app: Int)
    case resume(app: Int)

    /// Kills the adapter. Its program continues.
    case killAdapter
    case startAdapter
    /// Kills the adapter's program. The processes that it has started continue.
    case killProgram

    case killBroker
    case startBroker
    case stopBroker
    case resumeBroker
    case restartBus
    /// From here on the next sign-in waits for cleanups. Requires a running broker and room on its disk.
    case becomeStrict

    /// A hostile client of an unrelated user repeats this deed against the broker.
    case attack(String)
    case endAttack
    case fillDisk
    case freeDisk

    /// In milliseconds.
    case pause(Int)
    /// Waits until the running apps have answered their commands.
    case untilAnswered
    /// Waits until no cleanup is owed. Requires that broker, adapter and all apps run, and room on the disk.
    case untilCleaned
    /// Waits until all apps show the signed-in user. Requires the same as ``untilCleaned``.
    case untilShown
}
