import Foundation
import MSAL

// The minimal parts of iOS and of frameworks that the forms need to compile.

/// Stands for UIKit's class. It also asks the person for name and password, as ported apps do.
class UIViewController {
    private let name: String
    private let password: String

    init(name: String, password: String) {
        self.name = name
        self.password = password
    }
}

extension UIViewController: MSALCredentialsPrompting {
    func credentials(forLoginHint loginHint: String?) async throws -> MSALCredentials? {
        MSALCredentials(username: loginHint ?? name, password: password)
    }
}

class WKWebView {}

/// A call from the web page of a hybrid app: it has options, and is resolved or rejected.
struct PluginCall {
    let options: [String: Any]

    func getString(_ key: String) -> String? { options[key] as? String }
    func getArray<Element>(_ key: String, _ type: Element.Type) -> [Element]? { options[key] as? [Element] }
    func resolve(_ answer: [String: Any] = [:]) {
        print("resolved", answer.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: " "))
    }
    func reject(_ reason: String) { print("rejected", reason) }
}

/// One way to write an app with MSAL. Each line of standard input is the press of a button.
protocol Form {
    func press(_ button: String)
}
