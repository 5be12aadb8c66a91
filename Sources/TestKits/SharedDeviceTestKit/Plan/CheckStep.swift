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
        let app = { () throws(CheckPlanError) in try members.required("app").string() }
        let within = try members["within"]?.number() ?? Self.patience
        switch action {
        case .signIn: self = .signIn(user: try members.required("user").string())
        case .refuseSignIn: self = .refuseSignIn(user: try members.required("user").string())
        case .signOut: self = .signOut
        case .waitUntilRunning: self = .waitUntilRunning(within: within)
        case .send: self = .send(app: try app(), line: try members.required("line").string())
        case .waitForLine:
            let text = try members.required("containing").string()
            self = .waitForLine(app: try app(), containing: text, within: within)
        case .waitForMarker:
            let marker = try members.required("marker").string()
            self = .waitForMarker(app: try app(), marker: marker, within: within)
        case .pause: self = .pause(milliseconds: try members.required("milliseconds").number())
        case .start: self = .start(app: try app())
        case .stop: self = .stop(app: try app())
        case .resume: self = .resume(app: try app())
        case .kill: self = .kill(app: try app())
        case .slowCleanup:
            self = .slowCleanup(app: try app(), milliseconds: try members.required("milliseconds").number())
        case .killBroker: self = .killBroker
        case .startBroker: self = .startBroker
        case .restartBus: self = .restartBus
        case .spoofBroadcast: self = .spoofBroadcast
        case .warn: self = .warn
        case .lock: self = .lock
        case .unlock: self = .unlock(user: try members.required("user").string())
        case .expect: self = .expect(try CheckExpectation(members))
        }
    }

    var json: JSONValue {
        let (action, members): (Action, [String: JSONValue]) =
            switch self {
            case .signIn(let user): (.signIn, ["user": .string(user)])
            case .refuseSignIn(let user): (.refuseSignIn, ["user": .string(user)])
            case .signOut: (.signOut, [:])
            case .waitUntilRunning(let within): (.waitUntilRunning, ["within": .number(within)])
            case .send(let app, let line): (.send, ["app": .string(app), "line": .string(line)])
            case .waitForLine(let app, let text, let within):
                (.waitForLine, ["app": .string(app), "containing": .string(text), "within": .number(within)])
            case .waitForMarker(let app, let marker, let within):
                (.waitForMarker, ["app": .string(app), "marker": .string(marker), "within": .number(within)])
            case .pause(let time): (.pause, ["milliseconds": .number(time)])
            case .start(let app): (.start, ["app": .string(app)])
            case .stop(let app): (.stop, ["app": .string(app)])
            case .resume(let app): (.resume, ["app": .string(app)])
            case .kill(let app): (.kill, ["app": .string(app)])
            case .slowCleanup(let app, let time):
                (.slowCleanup, ["app": .string(app), "milliseconds": .number(time)])
            case .killBroker: (.killBroker, [:])
            case .startBroker: (.startBroker, [:])
            case .restartBus: (.restartBus, [:])
            case .spoofBroadcast: (.spoofBroadcast, [:])
            case .warn: (.warn, [:])
            case .lock: (.lock, [:])
            case .unlock(let user): (.unlock, ["user": .string(user)])
            case .expect(let expectation): (.expect, expectation.members)
            }
        return .object(members.merging(["do": .string(action.rawValue)]) { $1 })
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
        let string = { (cursor: JSONCursor) throws(CheckPlanError) in try cursor.string() }
        apps = try members["apps"]?.list(string)
        present = try members["present"]?.list(string) ?? []
        heardWithin = try members["heardWithin"]?.number()
        cleanedWithin = try members["cleanedWithin"]?.number()
        absent = try members["absent"]?.list(string) ?? []
        guard !present.isEmpty || heardWithin != nil || cleanedWithin != nil || !absent.isEmpty else {
            throw CheckPlanError(
                members.path,
                "it expects nothing; say “present”, “heardWithin”, “cleanedWithin” or “absent”"
            )
        }
    }

    var members: [String: JSONValue] {
        var members: [String: JSONValue] = [:]
        if let apps { members["apps"] = .array(apps.map { .string($0) }) }
        if !present.isEmpty { members["present"] = .array(present.map { .string($0) }) }
        if let heardWithin { members["heardWithin"] = .number(heardWithin) }
        if let cleanedWithin { members["cleanedWithin"] = .number(cleanedWithin) }
        if !absent.isEmpty { members["absent"] = .array(absent.map { .string($0) }) }
        return members
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
        case .waitForMarker(let app, let marker, _):
            "wait until “\(marker.printable)” is in the data of \(names[app])"
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
