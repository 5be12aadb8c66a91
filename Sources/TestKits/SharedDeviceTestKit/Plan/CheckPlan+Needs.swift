import FoundationEssentials
import NotifyCenterTestKit

extension CheckPlan {
    private static let patience = Duration.seconds(30)

    /// Runs the command of each app that has one. If the command fails, the app is left out, together with the steps
    /// that concern only this app: a plan can have apps whose dependencies are not on every machine.
    ///
    /// - Returns: the apps that are left out, in the order of the plan.
    func appsLeftOut() async -> [CheckResult.LeftOut] {
        var leftOut: [CheckResult.LeftOut] = []
        for app in apps {
            guard let command = needs[app.identifier],
                let reason = await Self.failure(of: command)
            else { continue }
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
