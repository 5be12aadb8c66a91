import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite struct ConfiguredPathTests {
    // Rules, a.5 and a.13: an event is pending for 100 ms before its path is looked at again.
    @Test func aReloadKeepsThePendingChangeOfAWatchedPath() async throws {
        let (daemon, directory) = (try await Daemon(), try TemporaryDirectory("paths"))
        let path = "\(directory.path)/f"
        let lines = "monitor com.example.file \(path)\n"
        let client = try Client(daemon.bus)
        let posts = SharedLines()
        let observation = try await DarwinNotifyCenter(connection: client.connection)
            .observe("com.example.file") { posts.append($0.name.rawValue) }
        try daemon.reload(lines)
        try await eventually("the path is watched") { try await client.status().contains("paths: 1, ") }
        for round in 1...3 {
            try "\(round)".write(toFile: path, atomically: false, encoding: .utf8)
            try daemon.reload("\(lines)set round-\(round) 1\n")
            try await eventually("read again") { try await client.state("round-\(round)") == 1 }
            try await eventually("posted") { posts.lines.count >= round }
        }
        #expect(try await client.status().contains("paths: 1, "))
        // A path that the configuration no longer names is not watched.
        try daemon.reload("")
        try await eventually("the watch is removed") { try await client.status().contains("paths: 0, watches 0") }
        withExtendedLifetime(observation) {}
    }
}
