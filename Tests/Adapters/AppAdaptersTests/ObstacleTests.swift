import AppAdapters
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite("Obstacles to an adapter's cleanup")
struct ObstacleTests {
    @Test("an obstacle is in status and log; the cleanup succeeds once it is gone", .needsRoot)
    func dataOfAnotherUser() async throws {
        let kiosk = try await Kiosk()
        try kiosk.enrol(Kiosk.cleanup(deleting: kiosk.data))
        try await kiosk.endSession()
        let adapter = try kiosk.adapter()
        func isTold(_ text: String) -> Bool { text.contains(kiosk.data) && text.contains("chown") }
        try await eventually("the status has the obstacle", within: .seconds(60)) { isTold(try await kiosk.status()) }
        try await eventually("the device log has the obstacle", within: .seconds(60)) { isTold(try await kiosk.log()) }
        try await eventually("the adapter log has the obstacle", within: .seconds(60)) { isTold(adapter.errorText) }
        #expect(try await kiosk.owes())
        succeed(chown(kiosk.data, Kiosk.user, Kiosk.user))
        try await kiosk.waitUntilFinished()
        await adapter.end()
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
}
