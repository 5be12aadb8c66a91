import FoundationEssentials
import HTTPClient
import StrictJSON

/// A service that an app is a client of, such as the one in `Examples/ResourceServer`: it gives orders to whoever shows a token that permits that.
///
/// The app asks the broker for a token before each use, and keeps none: the broker has it, for as long as its person is signed in.
package struct OrdersService: Sendable {
    /// What a token has to permit.
    static let scope = "orders.read"

    private let address: HTTPAddress
    private let client = HTTPClient()

    /// - Returns: `nil` where that is no address of a server: `https`, or `http` on this machine.
    package init?(_ address: String) {
        guard let address = HTTPAddress(address) else { return nil }
        self.address = address
    }

    /// What the service did not do.
    struct Refused: Error, CustomStringConvertible {
        let description: String
    }

    /// Fetches the orders of whoever the token is of.
    ///
    /// - Returns: how many there are, and whose, in the service's words.
    /// - Throws: ``Refused`` with the service's reason.
    func orders(showing token: String) async throws(Refused) -> String {
        let answer: HTTPResponse
        do throws(HTTPError) {
            answer = try await client.send(HTTPRequest(address, fields: ["Authorization": "Bearer \(token)"]))
        } catch {
            throw Refused(description: "the service cannot be asked: \(error)")
        }
        let content = try? JSONValue(parsing: answer.body, limits: JSONLimits(size: 65_536))
        guard answer.status == 200, let subject = content?["of"]?.string, let orders = content?["orders"]?.array else {
            let reason = content?["reason"]?.string ?? "it gave no reason"
            throw Refused(description: "the service answered with \(answer.status): \(reason)")
        }
        return "\(orders.count) orders for \(subject)"
    }
}
