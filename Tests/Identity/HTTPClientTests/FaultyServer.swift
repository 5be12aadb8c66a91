import HTTPClient
import NotifyCenterTestKit
import StrictJSON

/// A running `faulty-server`, for as long as this object lives.
final class FaultyServer: Sendable {
    private let directory: TemporaryDirectory
    private let process: ChildProcess
    private let ports: JSONValue

    init() async throws {
        directory = try TemporaryDirectory("faulty-server")
        let program = #filePath.split(separator: "/").dropLast(2).joined(separator: "/")
        process = try ChildProcess("/usr/bin/python3", ["/\(program)/Providers/faulty-server", directory.path])
        let line = try await process.line { $0.hasPrefix("ready ") }
        ports = try JSONValue(parsing: Array(line.dropFirst("ready ".count).utf8), limits: JSONLimits(size: 4096))
    }

    deinit { process.kill() }

    /// The authority that vouches for the listener `good`.
    var authority: String { directory.path + "/authority.pem" }

    /// A client that trusts it.
    func client(patience: Int = 30) -> HTTPClient { HTTPClient(trustAnchors: authority, patience: patience) }

    /// An address of one of its listeners.
    func address(_ path: String, listener: String = "good", host: String = "localhost") throws -> HTTPAddress {
        guard let port = ports[listener]?.number.map({ Int($0) }),
            let address = HTTPAddress("\(listener == "plain" ? "http" : "https")://\(host):\(port)/\(path)")
        else { throw UnknownListener() }
        return address
    }
}

/// The server said something else than it was expected to.
struct UnknownListener: Error {}
