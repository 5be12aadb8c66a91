import Basics

/// Validates a plan: it must expect something, and its steps must be possible.
extension CheckPlan {
    func validate() throws(CheckPlanError) {
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
                guard Self.isBusName(name) else {
                    throw CheckPlanError(
                        "$.apps[\(index)].busName",
                        "“\(name.printable)” is no bus name, such as org.example.App"
                    )
                }
                guard busNames.insert(name).inserted else {
                    throw CheckPlanError("$.apps[\(index)].busName", "there is another app with this bus name")
                }
            }
        }
        for (index, user) in users.enumerated() where users[..<index].contains(user) {
            throw CheckPlanError("$.users[\(index)]", "there is another user “\(user)”")
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
            isSignedIn = true
        case .signOut:
            guard isSignedIn else { throw CheckPlanError(path, "no earlier step signs a user in") }
            (isSignedIn, hasSignedOut) = (false, true)
        case .waitForMarker(let app, let marker, _):
            seen[app, default: []].insert(marker)
        case .expect(let expectation):
            try take(expectation, path, plan)
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
