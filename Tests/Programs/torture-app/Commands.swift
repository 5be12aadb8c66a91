import FoundationEssentials
import SharedDevice

/// The commands on the app's standard input: `<number> <command> …`, each answered by a line that begins with the
/// number. Commands overlap.
///
/// - `sign-in <user> <patience in milliseconds>`: `signed-in <user> <token>`
/// - `sign-out <user> <account>`: `signed-out`
/// - `token <user> <account>`: `token <user> <token>`
/// - `ask`: `current <user>`
/// - `work`: `worked`
///
/// A refused request is answered by `refused <code>`.
struct Commands: Sendable {
    let application: SharedDeviceApplication
    let desk: Desk

    func answer(_ words: [String]) async -> String {
        let first = words.dropFirst().first ?? ""
        let second = words.dropFirst(2).first ?? ""
        let account = Account(identifier: second, username: first)
        do throws(SharedDeviceError) {
            switch words.first {
            case "sign-in":
                var parameters = InteractiveTokenParameters(scopes: ["work"], loginHint: first) { hint in
                    hint.map { Credentials(username: $0, password: "correct horse \($0)") }
                }
                parameters.patience = .milliseconds(Int(second) ?? 0)
                let result = try await application.acquireToken(with: parameters)
                return "signed-in \(result.account.username) \(result.accessToken)"
            case "sign-out":
                try await application.signout(with: account)
                return "signed-out"
            case "token":
                let parameters = SilentTokenParameters(scopes: ["work"], account: account)
                let result = try await application.acquireTokenSilent(with: parameters)
                return "token \(result.account.username) \(result.accessToken)"
            case "ask": return "current \(try await application.getCurrentAccount().current?.username ?? "-")"
            case "work":
                desk.work()
                return "worked"
            default: return "unknown"
            }
        } catch {
            return "refused \(error.code)"
        }
    }
}
