import Foundation
import MSAL

extension MSALWebviewParameters {
    /// A prompt at which the person types the name, and the password that the tests give that user.
    static func typing(_ user: String? = nil) -> MSALWebviewParameters {
        MSALWebviewParameters { hint in
            let name = user ?? hint ?? ""
            return MSALCredentials(username: name, password: "correct horse \(name)")
        }
    }

    static var unasked: MSALWebviewParameters {
        MSALWebviewParameters { _ in throw DeviceOnPrivateBus.Unexpected(description: "the prompt was shown") }
    }
}

extension MSALPublicClientApplication {
    @discardableResult
    func signIn(_ user: String) async throws -> MSALResult {
        let parameters = MSALInteractiveTokenParameters(scopes: ["orders.read"], webviewParameters: .typing(user))
        return try await acquireToken(with: parameters)
    }

    /// Requests the current account; returns the response as “current previous”.
    func told() async throws -> String {
        let (current, previous) = try await currentAccount(with: nil)
        return "\(current?.username ?? "-") \(previous?.username ?? "-")"
    }
}

func codes(of body: () async throws -> Void) async -> Codes? {
    do {
        try await body()
        return nil
    } catch {
        return Codes(error)
    }
}

struct Codes: Equatable, CustomStringConvertible {
    let code: Int
    let internalCode: Int?

    init?(_ error: (any Error)?) {
        guard let error = error as NSError?, error.domain == MSALErrorDomain,
            error.userInfo[MSALErrorDescriptionKey] is String
        else { return nil }
        code = error.code
        internalCode = error.userInfo[MSALInternalErrorCodeKey] as? Int
    }

    init(_ code: MSALError, _ internalCode: MSALInternalError? = nil) {
        self.code = code.rawValue
        self.internalCode = internalCode?.rawValue
    }

    static func `internal`(_ code: MSALInternalError) -> Codes { Codes(.internal, code) }

    var description: String { "\(code) \(internalCode.map(String.init) ?? "-")" }
}
