import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite struct ConfiguredPathTests {
    // Rules, a.5
    @Test func theConfigurationsPathsArePostedToAll() async throws {
        let (daemon, directory) = (try await Daemon(), try TemporaryDirectory("paths"))
        let client = try Client(daemon.bus)
        let path = "\(directory.path)/f"
        let center = DarwinNotifyCenter(connection: client.connection)
        let posts = SharedLines()
        let observation = try await center.observe("com.example.file") { posts.append($0.name.rawValue) }
        try daemon.configure("monitor com.example.file \(path)\nset now-there 1\n")
        daemon.process.send(SIGHUP)
        try await eventually("read again") { try await client.state("now-there") == 1 }
        // The watch is set on another thread; a change that comes too early is seen with the next.
        try await eventually("posted") {
            try UUID().uuidString.write(toFile: path, atomically: false, encoding: .utf8)
            return !posts.lines.isEmpty
        }
        withExtendedLifetime(observation) {}
    }
}
