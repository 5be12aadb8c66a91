import Foundation
import FoundationNetworking

/// A service that an app is a client of, such as the one in `Examples/ResourceServer`. It returns the orders of the
/// token's user.
///
/// The app requests a token from the broker before each call and stores none: the broker caches it while the user is
/// signed in.
public struct OrdersService: Sendable {
    /// The scope that a token needs.
    static let scope = "orders.read"

    private let address: URL
    private static let session: URLSession = {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.timeoutIntervalForResource = 30
        return URLSession(configuration: configuration)
    }()

    /// - Returns: `nil` if the text is not an address of a server: `https`, or `http` on this machine.
    public init?(_ address: String) {
        guard let url = URL(string: address), let scheme = url.scheme, let host = url.host(), !host.isEmpty,
            scheme == "https" || scheme == "http" && ["127.0.0.1", "localhost", "::1"].contains(host)
        else { return nil }
        self.address = url
    }

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
    /// - Returns: The number of orders and their owner, in the service's words.
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
