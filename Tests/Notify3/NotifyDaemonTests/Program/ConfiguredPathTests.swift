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
        // The watch is set on another thread. A change before that is seen with the next change.
        try await eventually("posted") {
            try UUID().uuidString.write(toFile: path, atomically: false, encoding: .utf8)
            return !posts.lines.isEmpty
        }
        withExtendedLifetime(observation) {}
    }

    // Rules, a.13: an event is pending for 100 ms before its path is looked at again.
    @Test func aReloadKeepsThePendingChangeOfAWatchedPath() async throws {
        let directory = try TemporaryDirectory("paths")
        let path = "\(directory.path)/f"
        let lines = "monitor com.example.file \(path)\n"
        let daemon = try await Daemon(configuration: lines)
        let client = try Client(daemon.bus)
        let posts = SharedLines()
        let observation = try await DarwinNotifyCenter(connection: client.connection)
            .observe("com.example.file") { posts.append($0.name.rawValue) }
        try await eventually("the path is watched") { try await client.status().contains("paths: 1, ") }
        for round in 1...3 {
            try "\(round)".write(toFile: path, atomically: false, encoding: .utf8)
            try daemon.configure("\(lines)set round-\(round) 1\n")
            daemon.process.send(SIGHUP)
            try await eventually("read again") { try await client.state("round-\(round)") == 1 }
            try await eventually("posted") { posts.lines.count >= round }
        }
        #expect(try await client.status().contains("paths: 1, "))
        // A path that the configuration no longer names is not watched.
        try daemon.configure("")
        daemon.process.send(SIGHUP)
        try await eventually("the watch is removed") { try await client.status().contains("paths: 0, watches 0") }
        withExtendedLifetime(observation) {}
    }
}
