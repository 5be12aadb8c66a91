import Basics
@_spi(Extensions) import SharedDevice

/// One step of a plan. Times are in milliseconds.
public enum CheckStep: Sendable, Hashable {
    /// Signs a user in, through the kit's own app.
    case signIn(user: String)
    /// Tries to sign in a user whom the device must refuse, because it is not for this user.
    case refuseSignIn(user: String)
    /// Signs out the current account, through the kit's own app. Does not wait for the other apps.
    case signOut
    /// Waits until all running apps have asked for the current account.
    case waitUntilRunning(within: Double)
    /// Writes a line to an app's standard input.
    case send(app: String, line: String)
    /// Waits for a line of an app's standard output, written since the plan last wrote to the app.
    case waitForLine(app: String, containing: String, within: Double)
    /// Waits until an app's data contains a marker.
    case waitForMarker(app: String, marker: String, within: Double)
    /// Waits for this time.
    case pause(milliseconds: Double)
    /// Starts an app that has no process.
    case start(app: String)
    /// Stops an app (SIGSTOP).
    case stop(app: String)
    /// Resumes an app (SIGCONT).
    case resume(app: String)
    /// Kills an app (SIGKILL).
    case kill(app: String)
    /// Stops the app as soon as the ledger says that it was told of the next sign-out, and resumes it after the pause.
    case slowCleanup(app: String, milliseconds: Double)
    /// Kills the broker (SIGKILL).
    case killBroker
    /// Starts the broker again.
    case startBroker
    /// Kills the bus and starts it again.
    case restartBus
    /// Posts the broker's broadcast from a connection other than the broker's.
    case spoofBroadcast
    /// Warns of the end of the session.
    case warn
    /// Locks the session, as after a time of inactivity.
    case lock
    /// Has the person of the locked session come back.
    case unlock(user: String)
    /// Checks an expectation. Waits until it holds, or until its times are over.
    case expect(CheckExpectation)

    /// The names of the steps in a plan: the values of `do`.
    enum Action: String, CaseIterable {
        case signIn, refuseSignIn, signOut, waitUntilRunning, send, waitForLine, waitForMarker, pause, start, stop
        case resume = "continue"
        case kill, slowCleanup, killBroker, startBroker, restartBus, spoofBroadcast, warn, lock, unlock, expect

        /// The keys in addition to `do`.
        var keys: [String] {
            switch self {
            case .signIn, .refuseSignIn, .unlock: ["user"]
            case .signOut, .killBroker, .startBroker, .restartBus, .spoofBroadcast, .warn, .lock: []
            case .waitUntilRunning: ["within"]
            case .send: ["app", "line"]
            case .waitForLine: ["app", "containing", "within"]
            case .waitForMarker: ["app", "marker", "within"]
            case .pause: ["milliseconds"]
            case .start, .stop, .resume, .kill: ["app"]
            case .slowCleanup: ["app", "milliseconds"]
            case .expect: ["apps", "present", "heardWithin", "cleanedWithin", "absent"]
            }
        }
    }

    /// The default time limit of a step, in milliseconds.
    static let patience: Double = 30_000

    init(_ cursor: JSONCursor) throws(CheckPlanError) {
        let action = try cursor.discriminator("do").choice(Action.self)
        let members = try cursor.object(keys: ["do"] + action.keys)
        let text = { (key: String) throws(CheckPlanError) in try members.required(key).string() }
        let app = { () throws(CheckPlanError) in try text("app") }
        let time = { () throws(CheckPlanError) in try members.required("milliseconds").number() }
        let within = try members["within"]?.number() ?? Self.patience
        switch action {
        case .signIn: self = .signIn(user: try text("user"))
        case .refuseSignIn: self = .refuseSignIn(user: try text("user"))
        case .signOut: self = .signOut
        case .waitUntilRunning: self = .waitUntilRunning(within: within)
        case .send: self = .send(app: try app(), line: try text("line"))
        case .waitForLine: self = .waitForLine(app: try app(), containing: try text("containing"), within: within)
        case .waitForMarker: self = .waitForMarker(app: try app(), marker: try text("marker"), within: within)
        case .pause: self = .pause(milliseconds: try time())
        case .start: self = .start(app: try app())
        case .stop: self = .stop(app: try app())
        case .resume: self = .resume(app: try app())
        case .kill: self = .kill(app: try app())
        case .slowCleanup: self = .slowCleanup(app: try app(), milliseconds: try time())
        case .killBroker: self = .killBroker
        case .startBroker: self = .startBroker
        case .restartBus: self = .restartBus
        case .spoofBroadcast: self = .spoofBroadcast
        case .warn: self = .warn
        case .lock: self = .lock
        case .unlock: self = .unlock(user: try text("user"))
        case .expect: self = .expect(try CheckExpectation(members))
        }
    }

    /// The app that the step concerns; `nil` if it concerns the device.
    var app: String? {
        switch self {
        case .send(let app, _), .waitForLine(let app, _, _), .waitForMarker(let app, _, _), .start(let app),
            .stop(let app), .resume(let app), .kill(let app), .slowCleanup(let app, _):
            app
        default: nil
        }
    }
}

/// The expectations of a plan for some apps. Times are in milliseconds since the last sign-out, according to the
/// broker's ledger.
public struct CheckExpectation: Sendable, Hashable {
    /// The apps; `nil` for all.
    public var apps: [String]?
    /// Strings that the data of each app must contain.
    public var present: [String] = []
    /// The latest time at which each app may be told of the last sign-out.
    public var heardWithin: Double?
    /// The latest time at which each app may report that it is clean.
    public var cleanedWithin: Double?
    /// Strings that no app's data may contain.
    public var absent: [String] = []

    /// Creates an empty expectation for these apps.
    public init(apps: [String]? = nil) { self.apps = apps }

    init(_ members: JSONCursor.Members) throws(CheckPlanError) {
        apps = try members["apps"]?.list()
        present = try members["present"]?.list() ?? []
        heardWithin = try members["heardWithin"]?.number()
        cleanedWithin = try members["cleanedWithin"]?.number()
        absent = try members["absent"]?.list() ?? []
        guard !present.isEmpty || heardWithin != nil || cleanedWithin != nil || !absent.isEmpty else {
            let keys = "“present”, “heardWithin”, “cleanedWithin” or “absent”"
            throw CheckPlanError(members.path, "it expects nothing; say \(keys)")
        }
    }
}

extension CheckStep {
    func text(_ names: AppNames) -> String {
        switch self {
        case .signIn(let user): "\(user.printable) signs in"
        case .refuseSignIn(let user): "\(user.printable) is refused"
        case .signOut: "sign-out"
        case .waitUntilRunning: "wait until the apps run"
        case .send(let app, let line): "tell \(names[app]) “\(line.printable)”"
        case .waitForLine(let app, let text, _): "wait until \(names[app]) writes “\(text.printable)”"
        case .waitForMarker(let app, let marker, _): "wait until “\(marker.printable)” is in the data of \(names[app])"
        case .pause(let time): "a pause of \(Text.milliseconds(time))"
        case .slowCleanup(let app, let time):
            "stop \(names[app]) for \(Text.milliseconds(time)) as soon as it is told of the next sign-out"
        case .start(let app): "start \(names[app])"
        case .stop(let app): "stop \(names[app]) (SIGSTOP)"
        case .resume(let app): "let \(names[app]) go on (SIGCONT)"
        case .kill(let app): "kill \(names[app]) (SIGKILL)"
        case .killBroker: "kill the broker (SIGKILL)"
        case .startBroker: "start the broker"
        case .restartBus: "restart the bus"
        case .spoofBroadcast: "post a broadcast that is not the broker's"
        case .warn: "warn of the end of the session"
        case .lock: "lock the session"
        case .unlock(let user): "\(user.printable) unlocks the session"
        case .expect(let expectation): expectation.text(names)
        }
    }
}

extension CheckExpectation {
    fileprivate func text(_ names: AppNames) -> String {
        let whose = apps.map { $0.map { names[$0] }.joined(separator: ", ") } ?? "every app"
        return "expect of \(whose): " + parts.joined(separator: "; ")
    }

    var parts: [String] {
        present.map(Expected.present)
            + [heardWithin.map(Expected.heard), cleanedWithin.map(Expected.cleaned)].compactMap(\.self)
            + absent.map(Expected.absent)
    }
}

enum Expected {
    static func present(_ marker: String) -> String { "“\(marker)” is in its data" }
    static func absent(_ marker: String) -> String { "nothing of “\(marker)” is left in its data" }
    static func heard(_ limit: Double) -> String { "hears of the sign-out within \(Text.milliseconds(limit))" }
    static func cleaned(_ limit: Double) -> String { "is clean within \(Text.milliseconds(limit))" }
}
