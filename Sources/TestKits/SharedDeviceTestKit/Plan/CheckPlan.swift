public import FoundationEssentials

/// A check of apps on a device: steps and expectations, as JSON. `Documentation/CheckPlan.md` describes the format.
public struct CheckPlan: Sendable, Hashable, Codable {
    /// The title of the reports.
    public var title: String
    /// The apps of the device.
    public var apps: [TestApp]
    /// The command of each app, by identifier, that must succeed for the app to take part. An app without a command
    /// always takes part.
    public var needs: [String: [String]]
    /// The names of the users.
    public var users: [String]
    /// Whether the next sign-in waits for the cleanup of the last session.
    public var cleanup: CleanupRule
    /// The steps, in order.
    public var steps: [CheckStep]

    /// Parses a plan.
    ///
    /// - Throws: ``CheckPlanError`` with the path of the mistake. An expectation that can never hold is also a mistake.
    public init(json: Data) throws(CheckPlanError) {
        self = try Self.read(JSONCursor(document: json))
    }

    /// Like ``init(json:)``; the error is a `DecodingError`.
    public init(from decoder: any Decoder) throws {
        let value = try JSONValue(from: decoder)
        do throws(CheckPlanError) {
            self = try Self.read(JSONCursor(value, path: "$"))
        } catch {
            throw DecodingError.dataCorrupted(
                .init(codingPath: decoder.codingPath, debugDescription: "\(error)", underlyingError: error)
            )
        }
    }

    /// Encodes the plan in the format of ``init(json:)``.
    public func encode(to encoder: any Encoder) throws {
        var members: [String: JSONValue] = [
            "title": .string(title), "users": .list(users.map(JSONValue.string)),
            "policy": .string(cleanup.policy.rawValue),
            "apps": .list(apps.map { $0.json(needs: needs[$0.identifier]) }), "steps": .list(steps.map(\.json)),
        ]
        if let timeout = cleanup.timeout { members["cleanupTimeout"] = .number(timeout) }
        try JSONValue.object(members).encode(to: encoder)
    }

    private init(
        title: String,
        apps: [TestApp],
        needs: [String: [String]],
        users: [String],
        cleanup: CleanupRule,
        steps: [CheckStep]
    ) {
        (self.title, self.apps, self.needs, self.users) = (title, apps, needs, users)
        (self.cleanup, self.steps) = (cleanup, steps)
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

    private static func read(_ root: JSONCursor) throws(CheckPlanError) -> CheckPlan {
        let members = try root.object(keys: ["title", "apps", "users", "policy", "cleanupTimeout", "steps"])
        let string = { (cursor: JSONCursor) throws(CheckPlanError) in try cursor.string() }
        var needs: [String: [String]] = [:]
        let apps = try members.required("apps").list { (cursor) throws(CheckPlanError) in
            let (app, command) = try TestApp.read(cursor)
            if let command { needs[app.identifier] = command }
            return app
        }
        var cleanup = CleanupRule(try members["policy"]?.choice(CleanupRule.Policy.self) ?? .advisory)
        cleanup.timeout = try members["cleanupTimeout"]?.number()
        let plan = CheckPlan(
            title: try members["title"]?.string() ?? "shared device check",
            apps: apps,
            needs: needs,
            users: try members["users"]?.list(string) ?? ["ada", "grace"],
            cleanup: cleanup,
            steps: try members.required("steps").list { (cursor) throws(CheckPlanError) in try CheckStep(cursor) }
        )
        try plan.validate()
        return plan
    }
}

extension TestApp {
    fileprivate static func read(_ cursor: JSONCursor) throws(CheckPlanError) -> (app: TestApp, needs: [String]?) {
        let members = try cursor.object(keys: [
            "identifier", "executable", "arguments", "environment", "dataDirectories", "busName", "enrolled", "start",
            "needs",
        ])
        let string = { (cursor: JSONCursor) throws(CheckPlanError) in try cursor.string() }
        let needs = try members["needs"]?.list(string)
        if let needs, needs.isEmpty {
            throw CheckPlanError("\(members.path).needs", "there is no command; write the program first")
        }
        let app = TestApp(
            try members.required("identifier").string(),
            executable: try members.required("executable").string(),
            arguments: try members["arguments"]?.list(string) ?? [],
            environment: try members["environment"]?.strings() ?? [:],
            dataDirectories: try members["dataDirectories"]?.list(string) ?? [],
            busName: try members["busName"]?.string(),
            isEnrolled: try members["enrolled"]?.boolean() ?? true,
            startsWithDevice: try members["start"]?.boolean() ?? true
        )
        return (app, needs)
    }

    fileprivate func json(needs: [String]?) -> JSONValue {
        var members: [String: JSONValue] = [
            "identifier": .string(identifier), "executable": .string(executable),
            "arguments": .list(arguments.map(JSONValue.string)),
            "environment": .object(environment.mapValues(JSONValue.string)),
            "dataDirectories": .list(dataDirectories.map(JSONValue.string)), "start": .boolean(startsWithDevice),
            "enrolled": .boolean(isEnrolled),
        ]
        if let busName { members["busName"] = .string(busName) }
        if let needs { members["needs"] = .list(needs.map(JSONValue.string)) }
        return .object(members)
    }
}

/// A mistake in a plan, with its path.
public struct CheckPlanError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The place in the plan, for instance `$.steps[3].app`; `$` for the whole.
    public let path: String
    /// The mistake, and its remedy.
    public let message: String

    init(_ path: String, _ message: String) {
        self.path = path
        self.message = message
    }

    public var description: String { "\(path): \(message)" }
}
