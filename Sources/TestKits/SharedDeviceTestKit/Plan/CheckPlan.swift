import Basics
public import FoundationEssentials
import NotifyCenterTestKit

/// A check of apps on a device: steps and expectations, as JSON. `Documentation/CheckPlan.md` describes the format.
public struct CheckPlan: Sendable, Hashable {
    /// The title of the reports.
    public var title: String
    /// The apps of the device.
    public var apps: [TestApp]
    /// The command of each app, by identifier, that must succeed for the app to take part. An app without a command
    /// always takes part.
    public var needs: [String: [String]]
    /// The names of the users.
    public var users: [String]
    /// The groups of the users, with the names of their users.
    public var groups: [String: [String]]
    /// The users who may sign in; `nil` means all.
    public var allowedUsers: AllowedPeople?
    /// Whether the next sign-in waits for the cleanup of the last session.
    public var cleanup: CleanupRule
    /// The steps, in order.
    public var steps: [CheckStep]

    /// Parses a plan.
    ///
    /// - Throws: ``CheckPlanError`` with the path of the mistake. An expectation that can never hold is also a mistake.
    public init(json: Data) throws(CheckPlanError) {
        let members = try JSONCursor(document: json).object(keys: [
            "title", "apps", "users", "groups", "allowedUsers", "policy", "cleanupTimeout", "steps",
        ])
        needs = [:]
        apps = []
        for cursor in try members.required("apps").elements() {
            let (app, command) = try TestApp.read(cursor)
            apps.append(app)
            if let command { needs[app.identifier] = command }
        }
        cleanup = CleanupRule(try members["policy"]?.choice(CleanupRule.Policy.self) ?? .advisory)
        cleanup.timeout = try members["cleanupTimeout"]?.number()
        title = try members["title"]?.string() ?? "shared device check"
        users = try members["users"]?.list() ?? ["ada", "grace"]
        groups = try members["groups"]?.lists() ?? [:]
        allowedUsers = try AllowedPeople(members["allowedUsers"])
        steps = []
        for cursor in try members.required("steps").elements() { steps.append(try CheckStep(cursor)) }
        try validate()
    }

    /// Returns the plan with the relative paths of programs and data directories resolved against `directory`.
    public func relative(to directory: String) -> CheckPlan {
        let absolute: (String) -> String = { path in
            let isRelative = path.contains("/") && !path.hasPrefix("/") && !path.hasPrefix("{")
            return isRelative ? "\(directory)/\(path)" : path
        }
        let named: (String) -> String = { $0.replacing("{plan}", with: directory) }
        var plan = self
        plan.needs = plan.needs.mapValues { $0.map(named) }
        for index in plan.apps.indices {
            plan.apps[index].executable = absolute(plan.apps[index].executable)
            plan.apps[index].arguments = plan.apps[index].arguments.map(named)
            plan.apps[index].environment = plan.apps[index].environment.mapValues(named)
            plan.apps[index].dataDirectories = plan.apps[index].dataDirectories.map(absolute)
        }
        return plan
    }
}

extension TestApp {
    fileprivate static func read(_ cursor: JSONCursor) throws(CheckPlanError) -> (app: TestApp, needs: [String]?) {
        let members = try cursor.object(keys: [
            "identifier", "executable", "arguments", "environment", "dataDirectories", "busName", "enrolled",
            "allowedUsers", "start", "needs",
        ])
        let needs = try members["needs"]?.list()
        if let needs, needs.isEmpty {
            throw CheckPlanError("\(members.path).needs", "there is no command; write the program first")
        }
        let app = TestApp(
            try members.required("identifier").string(),
            executable: try members.required("executable").string(),
            arguments: try members["arguments"]?.list() ?? [],
            environment: try members["environment"]?.strings() ?? [:],
            dataDirectories: try members["dataDirectories"]?.list() ?? [],
            busName: try members["busName"]?.string(),
            isEnrolled: try members["enrolled"]?.boolean() ?? true,
            allowedUsers: try AllowedPeople(members["allowedUsers"]),
            startsWithDevice: try members["start"]?.boolean() ?? true
        )
        return (app, needs)
    }
}

extension AllowedPeople {
    /// - Returns: `nil` if there is no rule.
    fileprivate init?(_ cursor: JSONCursor?) throws(CheckPlanError) {
        guard let members = try cursor?.object(keys: ["users", "groups"]) else { return nil }
        self.init(users: try members["users"]?.list() ?? [], groups: try members["groups"]?.list() ?? [])
        guard !users.isEmpty || !groups.isEmpty else {
            throw CheckPlanError(members.path, "it names neither a user nor a group; leave the key out to allow all")
        }
    }
}

/// A mistake in a plan, with its path.
public struct CheckPlanError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The place in the plan, for instance `$.steps[3].app`; `$` for the whole.
    public let path: String
    /// The mistake, and its remedy.
    public let message: String

    init(_ path: String, _ message: String) { (self.path, self.message) = (path, message) }

    /// The place and the mistake.
    public var description: String { "\(path): \(message)" }
}

extension CheckPlan {
    private static let patience = Duration.seconds(30)

    /// Runs the command of each app that has one. If the command fails, the app is left out, together with the steps
    /// that concern only this app: a plan can have apps whose dependencies are not on every machine.
    ///
    /// - Returns: the apps that are left out, in the order of the plan.
    func appsLeftOut() async -> [CheckResult.LeftOut] {
        var leftOut: [CheckResult.LeftOut] = []
        for app in apps {
            guard let command = needs[app.identifier], let reason = await Self.failure(of: command) else { continue }
            let isOnlyAbout: (CheckStep) -> Bool = { step in
                if case .expect(let expectation) = step { return expectation.apps == [app.identifier] }
                return step.app == app.identifier
            }
            let numbers = zip(1..., steps).filter { isOnlyAbout($1) }.map(\.0)
            leftOut.append(CheckResult.LeftOut(app: app.identifier, reason: reason, steps: numbers))
        }
        return leftOut
    }

    /// The reason why the command failed, from the last line of its standard error; `nil` if it succeeded.
    private static func failure(of command: [String]) async -> String? {
        let words = command.joined(separator: " ")
        do {
            let process = try ChildProcess(command[0], Array(command.dropFirst()))
            try process.closeInput()
            let status = await process.exitStatus(within: patience)
            guard status != 0 else { return nil }
            let said = process.errorText.split(separator: "\n").last.map { ": \($0)" } ?? ""
            return "“\(words)” ended with status \(status)\(said)"
        } catch {
            return "“\(words)” does not start: \(error)"
        }
    }
}

/// Validates a plan: it must expect something, and its steps must be possible.
extension CheckPlan {
    fileprivate func validate() throws(CheckPlanError) {
        guard !apps.isEmpty else { throw CheckPlanError("$.apps", "there are none, so there is nothing to check") }
        try validateNames()
        guard steps.contains(where: { if case .expect = $0 { true } else { false } }) else {
            throw CheckPlanError("$.steps", "nothing is expected; a plan needs a step {\"do\": \"expect\", …}")
        }
        var course = Course()
        for (index, step) in steps.enumerated() {
            let path = "$.steps[\(index)]"
            if let app = step.app { try require(app, "\(path).app") }
            try course.take(step, path, self)
        }
    }

    private func validateNames() throws(CheckPlanError) {
        var names: Set<String> = []
        var busNames: Set<String> = []
        for (index, app) in apps.enumerated() {
            guard names.insert(DeviceHost.fileName(app.identifier)).inserted else {
                throw CheckPlanError("$.apps[\(index)].identifier", "there is another app \(app.identifier)")
            }
            if let name = app.busName {
                let path = "$.apps[\(index)].busName"
                guard Self.isBusName(name) else {
                    throw CheckPlanError(path, "“\(name.printable)” is no bus name, such as org.example.App")
                }
                guard busNames.insert(name).inserted else {
                    throw CheckPlanError(path, "there is another app with this bus name")
                }
            }
        }
        for (index, user) in users.enumerated() where users[..<index].contains(user) {
            throw CheckPlanError("$.users[\(index)]", "there is another user “\(user)”")
        }
        for (group, members) in groups.sorted(by: { $0.key < $1.key }) {
            for user in members where !users.contains(user) {
                throw CheckPlanError("$.groups", "“\(group.printable)” has “\(user.printable)”, who is not in $.users")
            }
        }
    }

    private static func isBusName(_ name: String) -> Bool {
        let parts = name.split(separator: ".", omittingEmptySubsequences: false)
        return name.utf8.count <= 255 && parts.count > 1
            && parts.allSatisfy { part in
                part.first.map { !$0.isNumber } == true
                    && part.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "_-".contains($0)) }
            }
    }

    fileprivate func require(_ app: String, _ path: String) throws(CheckPlanError) {
        guard !apps.contains(where: { $0.identifier == app }) else { return }
        let names = apps.map { "“\($0.identifier)”" }.joined(separator: ", ")
        throw CheckPlanError(path, "there is no app “\(app.printable)”; there are \(names)")
    }
}

/// The state before each step of a plan, as far as it is known without running the plan.
private struct Course {
    private var isSignedIn = false
    private var user: String?
    private var isLocked = false
    private var hasSignedOut = false
    /// The markers of each app in the current or last session.
    private var seen: [String: Set<String>] = [:]

    mutating func take(_ step: CheckStep, _ path: String, _ plan: CheckPlan) throws(CheckPlanError) {
        switch step {
        case .signIn(let user):
            guard plan.users.contains(user) else {
                throw CheckPlanError("\(path).user", "there is no user “\(user.printable)” in $.users")
            }
            guard !isSignedIn else {
                throw CheckPlanError(path, "a user is already signed in; a shared device has one user")
            }
            (isSignedIn, self.user) = (true, user)
        case .lock:
            guard isSignedIn else { throw CheckPlanError(path, "no earlier step signs a user in") }
            guard !isLocked else { throw CheckPlanError(path, "the session is locked already") }
            isLocked = true
        case .unlock(let user):
            guard isLocked, user == self.user else {
                throw CheckPlanError("\(path).user", "no earlier step locks the session of “\(user.printable)”")
            }
            isLocked = false
        case .refuseSignIn(let user):
            guard plan.users.contains(user) else {
                throw CheckPlanError("\(path).user", "there is no user “\(user.printable)” in $.users")
            }
            guard !isSignedIn else {
                throw CheckPlanError(path, "a user is already signed in, so every other sign-in is refused")
            }
            guard plan.allowedUsers?.allows(user, plan.groups) == false else {
                throw CheckPlanError("\(path).user", "$.allowedUsers allows “\(user.printable)”")
            }
        case .signOut:
            guard isSignedIn else { throw CheckPlanError(path, "no earlier step signs a user in") }
            (isSignedIn, hasSignedOut, isLocked) = (false, true, false)
        case .waitForMarker(let app, let marker, _): seen[app, default: []].insert(marker)
        case .expect(let expectation): try take(expectation, path, plan)
        default: break
        }
    }

    private mutating func take(
        _ expectation: CheckExpectation,
        _ path: String,
        _ plan: CheckPlan
    ) throws(CheckPlanError) {
        let apps = expectation.apps ?? plan.apps.map(\.identifier)
        guard !apps.isEmpty else { throw CheckPlanError("\(path).apps", "there are none") }
        for (index, app) in (expectation.apps ?? []).enumerated() { try plan.require(app, "\(path).apps[\(index)]") }
        let times = [("heardWithin", expectation.heardWithin), ("cleanedWithin", expectation.cleanedWithin)]
        for case (let key, _?) in times where !hasSignedOut {
            throw CheckPlanError("\(path).\(key)", "no earlier step signs out")
        }
        for app in apps { seen[app, default: []].formUnion(expectation.present) }
        for (index, marker) in expectation.absent.enumerated() {
            for app in apps where seen[app]?.contains(marker) != true || expectation.present.contains(marker) {
                throw CheckPlanError(
                    "\(path).absent[\(index)]",
                    "no earlier step sees “\(marker.printable)” in \(app), so its absence would prove nothing; "
                        + "expect it “present” in a step before the sign-out"
                )
            }
        }
    }
}
