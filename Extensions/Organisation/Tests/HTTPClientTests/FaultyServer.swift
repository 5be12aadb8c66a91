import Basics
import HTTPClient
import Identity
import NotifyCenterTestKit
import TestProviders

/// A running `faulty-server`.
final class FaultyServer: Sendable {
    /// One process for all tests. It ends with the test process, which holds its standard input.
    static let shared = Task { try await FaultyServer() }

    private let directory: TemporaryDirectory
    private let process: ChildProcess
    private let ports: JSONValue

    private init() async throws {
        directory = try TemporaryDirectory("faulty-server")
        process = try ChildProcess("/usr/bin/python3", ["\(FaultyProvider.folder)/faulty-server", directory.path])
        let line = try await process.line { $0.hasPrefix("ready ") }
        ports = try JSONValue(parsing: Array(line.dropFirst("ready ".count).utf8), limits: JSONLimits(size: 4096))
    }

    /// A client that trusts the authority that the listener `good` is signed by.
    func client(patience: Int = 30) -> HTTPClient {
        HTTPClient(trustAnchors: directory.path + "/authority.pem", patience: patience)
    }

    func address(_ path: String, listener: String = "good", host: String = "localhost") throws -> HTTPAddress {
        guard let port = ports[listener]?.number, let address = HTTPAddress("https://\(host):\(Int(port))/\(path)")
        else { throw NoAddress() }
        return address
    }
}
