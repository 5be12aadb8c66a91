import AppAdapters
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit
import Testing

@Suite("Obstacles to an adapter's cleanup")
struct ObstacleTests {
    private static let user: UInt32 = 65534

    enum Obstacle: String, CaseIterable, Sendable {
        case dataOfAnotherUser, missingUnit
    }

    private struct Planted {
        var cleanup: String
        /// The words that status and log must contain.
        var words: [String]
        var clear: () throws -> Void
    }

    private func plant(_ obstacle: Obstacle, in kiosk: Kiosk) throws -> Planted {
        let (data, place) = (kiosk.data, kiosk.directory.path)
        func deleting(_ path: String) -> String { #"{"command": ["/bin/sleep", "1000"], "delete": ["\#(path)"]}"# }
        func own(_ path: String) { succeed(chown(path, Self.user, Self.user)) }
        if obstacle != .dataOfAnotherUser { own(data) }
        switch obstacle {
        case .dataOfAnotherUser:
            return Planted(cleanup: deleting(data), words: [data, "chown"]) { own(data) }
        case .missingUnit:
            let answer = "\(place)/answer"
            try "not-found".write(toFile: answer, atomically: true, encoding: .utf8)
            _ = try kiosk.directory.writeScript(
                "systemctl",
                #"printf 'LoadState=%s\nActiveState=inactive\nControlGroup=\n' "$(cat \#(answer))""#
            )
            return Planted(
                cleanup: #"{"unit": "kiosk.service", "delete": ["\#(data)"]}"#,
                words: ["kiosk.service", "no such unit", "correct the name in the app's manifest"]
            ) { try "loaded".write(toFile: answer, atomically: true, encoding: .utf8) }
        }
    }

    @Test(
        "an obstacle is in status and log; the cleanup succeeds once it is gone",
        .enabled(if: geteuid() == 0, "only root becomes another user"),
        arguments: Obstacle.allCases
    )
    func told(obstacle: Obstacle) async throws {
        let kiosk = try await Kiosk()
        let place = kiosk.directory.path
        let planted = try plant(obstacle, in: kiosk)
        try kiosk.enrol(planted.cleanup, user: Self.user)
        try await kiosk.endSession()
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        let adapter = try kiosk.adapter(["PATH": "\(place):\(path)"])
        func isTold(_ text: String) -> Bool { planted.words.allSatisfy { text.contains($0) } }
        try await eventually("it is in the status", within: .seconds(60)) { isTold(try await kiosk.status()) }
        try await eventually("it is in the device's log", within: .seconds(60)) { isTold(try await kiosk.log()) }
        try await eventually("it is in the adapter's log", within: .seconds(60)) { isTold(adapter.errorText) }
        #expect(try await kiosk.device.application("org.example.control").currentRoundOwes())
        try planted.clear()
        try await eventually("the debt is paid", within: .seconds(60)) {
            try await kiosk.part()?.progress == .finished
        }
        adapter.send(SIGTERM)
        #expect(await adapter.exitStatus(within: .seconds(60)) == 0, "\(adapter.errorText)")
    }

    @Test("a unit that survives its kill is an error that names it and a remedy")
    func outlivesKill() async throws {
        let directory = try TemporaryDirectory("outlives-kill")
        let program = try directory.writeScript(
            "systemctl",
            #"case "$*" in *show*) printf 'LoadState=loaded\nActiveState=active\nControlGroup=\n' ;; esac"#
        )
        var patience = StopPatience()
        (patience.asked, patience.killed) = (.milliseconds(100), .milliseconds(100))
        let control = UnitControl("kiosk.service", isSystem: true, patience: patience, systemctl: program)
        let failure = await #expect(throws: AdapterFailure.self) { try await control.stop() }
        let text = failure?.description ?? ""
        #expect(
            text.contains("kiosk.service") && text.contains("although it was killed") && text.contains("restart"),
            "\(text)"
        )
        #expect(try await !control.isStopped())
    }

    @Test("a reason that ends with a full stop gets no second one")
    func fullStop() {
        let failures = ["it is away", "It is away."].map { AdapterFailure("stop", "x", $0, remedy: "Wait") }
        #expect(
            failures.map(\.description) == ["could not stop x: it is away. Wait", "could not stop x: It is away. Wait"]
        )
    }

    @Test(
        "broker and adapter refuse a manifest that deletes more than the app's data",
        .enabled(if: geteuid() == 0, "only root becomes another user")
    )
    func refusedManifest() async throws {
        let (path, reason) = ("/home/grace/notes", "the home directory of another user")
        let kiosk = try await Kiosk()
        try kiosk.enrol(#"{"command": ["/bin/sleep", "1000"], "delete": ["\#(path)"]}"#, user: "nobody")
        let adapter = try kiosk.adapter()
        try await eventually("both say so", within: .seconds(60)) {
            [adapter.errorText, kiosk.device.brokerText].allSatisfy { $0.contains(reason) && $0.contains("kiosk.json") }
        }
        #expect(adapter.isRunning, "it waits for a better one")
        adapter.send(SIGTERM)
        #expect(await adapter.exitStatus(within: .seconds(60)) == 0, "\(adapter.errorText)")
    }
}
