import DBus
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite struct PrivateBusTests {
    @Test(.enabled(if: PrivateBus.Daemon.chosen == .daemon, "dbus-broker starts nothing without systemd"))
    func aServiceThatTheBusStartsFindsThisBus() async throws {
        let directory = try TemporaryDirectory("service")
        let script = try directory.writeScript(
            "service",
            #"echo "$NOTIFY_CENTER_BUS" > "$0.new"; mv "$0.new" "$0.bus""#
        )
        let bus = try PrivateBus(.init(services: ["org.example.service": script]))
        // The service never owns the name, so the result of the call does not matter.
        try DBusConnection.open(bus.bus).send(
            .methodCall(
                destination: "org.example.service",
                path: "/",
                interface: "org.example.service",
                member: "Start"
            )
        )
        try await eventually("it is started") { FileManager.default.fileExists(atPath: "\(script).bus") }
        #expect(try String(contentsOfFile: "\(script).bus", encoding: .utf8) == "\(bus.address)\n")
    }
}
