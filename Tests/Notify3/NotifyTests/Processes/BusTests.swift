import DBus
import Foundation
import Glibc
import NotifyCenter
import NotifyCenterTestKit
import Testing

/// Functions that work between processes without notifyd.
@Suite struct BusTests {
    let bus: PrivateBus
    let (listener, poster): (Probe, Probe)

    init() throws {
        bus = try PrivateBus()
        (listener, poster) = (try Probe(bus.environment), try Probe(bus.environment))
    }

    // Posting, observing and paths work without notifyd. Functions that need it fail.
    @Test func withoutNotifydOnlyStateAndReservedNamesAreMissing() async throws {
        let reserved = "user.uid.\(geteuid())"
        let token = try await listener.register("dispatch", "menu")
        let failed = try await listener.replies(
            "set \(token) 5",
            "get \(token)",
            "post \(reserved)",
            "dump /dev/null",
            "suspend-process \(listener.process.identifier)"
        )
        #expect(failed == ["status 9"])
        let error = #expect(throws: DBusError.self) {
            try DarwinNotifyCenter(bus: bus.bus).post(NotificationName(reserved))
        }
        #expect(error?.code == .refused)
        // The kernel has few inotify instances, and frees those of ended processes with a delay.
        try await eventually { try await listener.ask("monitor \(token) /etc/hosts 0") == "status 0" }
        #expect(try await poster.ask("post menu") == "status 0")
        try await eventually { listener.calls(token) == 1 }
    }

    // A handler on the reading thread may register while another thread waits for the reading thread.
    @Test func aHandlerRegistersDuringTheFirstRegistrationOfItsProcess() async throws {
        #expect(try await listener.ask("register-in-handler") == "status 0")
    }

    // Rules, a.5: an unreadable file may reserve any name.
    @Test func aConfigurationThatCannotBeReadFailsEachCallUntilItCan() async throws {
        let directory = try TemporaryDirectory("notify-configuration")
        let file = "\(directory.path)/notify.conf"
        mkdir(file, 0o700)
        let probe = try Probe(bus.environment.merging(["NOTIFY_CENTER_CONFIGURATION": file]) { $1 })
        #expect(try await probe.replies("check menu", "dispatch menu", "post menu") == ["status 1000000"])
        _ = try await probe.register("check", "self.menu")
        try await eventually("the cause is reported, once") {
            probe.process.errorText.components(separatedBy: "it is not a regular file").count == 2
        }
        rmdir(file)
        let token = try await probe.register("dispatch", "menu")
        #expect(try await probe.ask("post menu") == "status 0")
        try await eventually { probe.calls(token) == 1 }
    }
}
