import Foundation
import SharedDeviceTestKit
import Testing

@Suite("Plans of checks")
struct CheckPlanTests {
    static func plan(_ steps: String, apps: String? = nil, more: String = "") -> Data {
        let apps = apps ?? "[{\(sh)}]"
        return Data(#"{"apps": \#(apps), "steps": [\#(steps)]\#(more)}"#.utf8)
    }

    private static func planOfApp(_ fields: String) -> Data { plan(expect, apps: "[{\(fields)}]") }

    static let expect = #"{"do": "expect", "present": ["x"]}"#
    private static let signIn = #"{"do": "signIn", "user": "ada"}, "#
    private static let refuse = #"{"do": "refuseSignIn", "user": "ada"}, "#
    private static let sh = #""identifier": "a", "executable": "sh""#

    @Test(
        "an error in a plan is reported with its path",
        arguments: [
            (Data("[".utf8), "$: it is not JSON: it ends too early, in line 1, column 2"),
            (Data("{\n  \"apps\": [],\n  \"é\": [1, }".utf8), "$: it is not JSON: invalid value in line 3, column 12"),
            (Data("[]".utf8), "$: it is a list, not an object"),
            (Data("{}".utf8), "$: it lacks “apps”"),
            (plan(expect, apps: "[]"), "$.apps: there are none"),
            (planOfApp(#""executable": "sh""#), "$.apps[0]: it lacks “identifier”"),
            (planOfApp(#""identifier": 7, "executable": "sh""#), "$.apps[0].identifier: it is a number, not a string"),
            (planOfApp(#""identifier": "", "executable": "sh""#), "$.apps[0].identifier: it is empty"),
            (planOfApp(sh + #", "argumnts": []"#), "$.apps[0].argumnts: there is no such key"),
            (planOfApp(sh + #", "environment": {"X Y": 1}"#), #"$.apps[0].environment["X Y"]: it is a number"#),
            (planOfApp(sh + #", "needs": []"#), "$.apps[0].needs: there is no command"),
            (planOfApp(sh + "}, {" + sh), "$.apps[1].identifier: there is another app a"),
            (planOfApp(sh + #", "busName": "nodots\n""#), "$.apps[0].busName: “nodots\\u{a}” is no bus name"),
            (plan(expect, more: #", "polcy": "strict""#), "$.polcy: there is no such key"),
            (plan(expect, more: #", "policy": "lenient""#), "$.policy: “lenient” is none of “advisory”, “strict”"),
            (plan(expect, more: #", "users": ["ada", "ada"]"#), "$.users[1]: there is another user “ada”"),
            (plan(expect, more: #", "allowedUsers": {}"#), "$.allowedUsers: it names neither a user nor a group"),
            (plan(expect, more: #", "groups": {"a": ["eve"]}"#), "$.groups: “a” has “eve”, who is not in $.users"),
            (plan(refuse + expect), "$.steps[0].user: $.allowedUsers allows “ada”"),
            (
                plan(signIn + refuse + expect, more: #", "allowedUsers": {"groups": ["a"]}"#),
                "$.steps[1]: a user is already"
            ),
            (plan(""), "$.steps: nothing is expected"),
            (plan(#"{"user": "ada"}"#), "$.steps[0]: it lacks “do”"),
            (plan(#"{"do": "dance"}"#), "$.steps[0].do: “dance” is none of"),
            (plan(#"{"do": "kill", "app": "b"}, "# + expect), "$.steps[0].app: there is no app “b”; there are “a”"),
            (plan(#"{"do": "signIn", "user": "mallory"}, "# + expect), "$.steps[0].user: there is no user “mallory”"),
            (plan(#"{"do": "signOut"}, "# + expect), "$.steps[0]: no earlier step signs a user in"),
            (plan(signIn + signIn + expect), "$.steps[1]: a user is already signed in"),
            (plan(#"{"do": "pause", "milliseconds": -1}, "# + expect), "$.steps[0].milliseconds: -1.0 is not between"),
            (
                plan(#"{"do": "pause", "milliseconds": 1, "app": "a"}, "# + expect),
                "$.steps[0].app: there is no such key"
            ),
            (plan(#"{"do": "expect"}"#), "$.steps[0]: it expects nothing"),
            (plan(#"{"do": "expect", "cleanedWithin": 1}"#), "$.steps[0].cleanedWithin: no earlier step signs out"),
            (plan(#"{"do": "expect", "apps": ["b"], "present": ["x"]}"#), "$.steps[0].apps[0]: there is no app “b”"),
            (plan(#"{"do": "expect", "absent": ["x"]}"#), "$.steps[0].absent[0]: no earlier step sees “x” in a"),
        ]
    )
    func errors(plan: Data, expected: String) throws {
        let error = try #require(throws: CheckPlanError.self) { _ = try CheckPlan(json: plan) }
        #expect(error.description.hasPrefix(expected), "\(error)")
    }

    @Test("the example plans are valid, and paths in them can be relative to the plan")
    func examples() throws {
        let text = try String(contentsOf: Self.root.appending(path: "Documentation/CheckPlan.md"), encoding: .utf8)
        let json = try #require(text.split(separator: "```json\n").dropFirst().first?.split(separator: "```").first)
        #expect(try !CheckPlan(json: Data(json.utf8)).steps.isEmpty)
        let example = try CheckPlan(json: try Self.examplePlan())
        #expect(example.steps.count > 10)
        let others = ["python-notes", "shell-notes", "unchanged"]
        #expect(example.apps.map(\.identifier) == (ExampleApps.names + others).map(ExampleApps.identifier))
        #expect(Array(example.needs.keys) == [ExampleApps.identifier("python-notes")])
        let plan = example.relative(to: "/plans")
        let python = try #require(plan.apps.first { $0.identifier.hasSuffix("python-notes") })
        #expect(python.arguments == ["/plans/PythonNotes/notes.py"])
        #expect(python.environment == ["PYTHONPATH": "/plans/../Clients/python/src"])
        let shell = plan.apps.first { $0.identifier.hasSuffix("shell-notes") }
        #expect(shell?.executable == "/plans/ShellScript/notes.sh")
    }

    @Test("a plan may have every step")
    func everyStep() throws {
        let steps = """
            {"do": "refuseSignIn", "user": "grace"}, {"do": "signIn", "user": "ada"}, {"do": "waitUntilRunning", "within": 5}, {"do": "send", "app": "a", "line": "l"},
            {"do": "waitForLine", "app": "a", "containing": "c"}, {"do": "waitForMarker", "app": "a", "marker": "m"},
            {"do": "pause", "milliseconds": 1.5}, {"do": "start", "app": "a"}, {"do": "stop", "app": "a"},
            {"do": "continue", "app": "a"}, {"do": "kill", "app": "a"}, {"do": "slowCleanup", "app": "a", "milliseconds": 2},
            {"do": "killBroker"}, {"do": "startBroker"}, {"do": "restartBus"}, {"do": "spoofBroadcast"},
            {"do": "warn"}, {"do": "lock"}, {"do": "unlock", "user": "ada"}, {"do": "signOut"},
            {"do": "expect", "apps": ["a"], "heardWithin": 1, "cleanedWithin": 2, "absent": ["m"]}
            """
        let apps = #"[{\#(Self.sh), "allowedUsers": {"users": ["ada"], "groups": ["nurses"]}}]"#
        let rules = #", "groups": {"nurses": ["ada"]}, "allowedUsers": {"groups": ["nurses"]}"#
        let more = #", "policy": "strict", "cleanupTimeout": 30\#(rules)"#
        let plan = try CheckPlan(json: Self.plan(steps, apps: apps, more: more))
        #expect(plan.apps[0].allowedUsers == AllowedPeople(users: ["ada"], groups: ["nurses"]))
        #expect(plan.groups == ["nurses": ["ada"]] && plan.allowedUsers == AllowedPeople(groups: ["nurses"]))
        #expect(plan.steps[2...3] == [.waitUntilRunning(within: 5), .send(app: "a", line: "l")])
        #expect(plan.steps[4] == .waitForLine(app: "a", containing: "c", within: 30_000))
        #expect(plan.steps[11] == .slowCleanup(app: "a", milliseconds: 2))
        #expect(plan.steps.count == 21 && plan.cleanup == CleanupRule(.strict, timeout: 30))
    }

    static var root: URL { URL(fileURLWithPath: #filePath).appending(path: "../../../..").standardized }
    static func examplePlan() throws -> Data { try Data(contentsOf: root.appending(path: "Examples/check-plan.json")) }
}
