import Foundation
import FoundationNetworking

/// A service that an app is a client of, such as the one in `Examples/ResourceServer`. It returns the orders of the user whose token it is shown.
///
/// The app asks the broker for a token before each request and keeps none: the broker holds it while the user is signed in.
package struct OrdersService: Sendable {
    /// What a token has to permit.
    static let scope = "orders.read"

    private let address: URL
    private static let session: URLSession = {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.timeoutIntervalForResource = 30
        return URLSession(configuration: configuration)
    }()

    /// - Returns: `nil` if the text is not an address of a server: `https`, or `http` on this machine.
    package init?(_ address: String) {
        guard let url = URL(string: address), let scheme = url.scheme, let host = url.host(), !host.isEmpty,
            scheme == "https" || scheme == "http" && ["127.0.0.1", "localhost", "::1"].contains(host)
        else { return nil }
        self.address = url
    }

    /// The request failed.
    struct Refused: Error, CustomStringConvertible {
        let description: String
    }

    private struct Content: Decodable {
        let of: String?
        let orders: [Order]?
        let reason: String?
        struct Order: Decodable {}
    }

    /// Fetches the orders of the token's user.
    ///
    /// - Returns: how many there are, and whose, in the service's words.
    /// - Throws: ``Refused`` with the service's reason.
    func orders(showing token: String) async throws(Refused) -> String {
        var request = URLRequest(url: address)
        request.setValue("Bearer \(token)", forHTTPHeaderField: "Authorization")
        let (body, status): (Data, Int)
        do {
            let (data, response) = try await Self.session.data(for: request)
            (body, status) = (data, (response as? HTTPURLResponse)?.statusCode ?? 0)
        } catch {
            throw Refused(description: "the request to \(address) failed: \(error.localizedDescription)")
        }
        let content = try? JSONDecoder().decode(Content.self, from: body)
        guard status == 200, let subject = content?.of, let orders = content?.orders else {
            let reason = content?.reason ?? "it gave no reason"
            throw Refused(description: "the service responded with \(status): \(reason)")
        }
        return "\(orders.count) orders for \(subject)"
    }
}
