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
        let token = try await listener.register("dispatch", "menu")
        #expect(try await listener.ask("set \(token) 5") == "status 9")
        #expect(try await listener.ask("get \(token)") == "status 9")
        #expect(try await listener.ask("post user.uid.\(geteuid())") == "status 9")
        // The kernel has few inotify instances, and frees those of ended processes with a delay.
        try await eventually { try await listener.ask("monitor \(token) /etc/hosts 0") == "status 0" }
        #expect(try await listener.ask("suspend-process \(listener.process.identifier)") == "status 9")
        #expect(try await listener.ask("dump /dev/null") == "status 9")
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
        for command in ["check menu", "dispatch menu", "post menu"] {
            #expect(try await probe.ask(command) == "status 1000000")
        }
        _ = try await probe.register("check", "self.menu")
        try await eventually("the cause is reported, once") {
            probe.process.errorText.components(separatedBy: "it is not a regular file").count == 2
        }
        rmdir(file)
        let token = try await probe.register("dispatch", "menu")
        #expect(try await probe.ask("post menu") == "status 0")
        try await eventually { probe.calls(token) == 1 }
    }

    // Any process may send signals that look like notifyd's.
    @Test func signalsOfStrangersAreNotTakenForNotifyds() async throws {
        let token = try await listener.register("dispatch", "menu")
        let stranger = try DBusConnection.open(bus.bus)
        let names = try await stranger.call(
            try .methodCall(
                destination: "org.freedesktop.DBus",
                path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus",
                member: "ListNames"
            )
        )
        for name in names.first?.stringsValue ?? [] where name.hasPrefix(":") && name != stranger.uniqueName {
            // Directed signals need no match rule.
            try stranger.send(try NotifydProtocol.signal(.tell, [.uint64(1)], to: name))
            try stranger.send(try NotifydProtocol.signal(.suspend, to: name))
            try stranger.send(try NotifydProtocol.signal(.tell, [.string("no number")], to: name))
        }
        try await stranger.flush()
        #expect(try await poster.ask("post menu") == "status 0")
        try await eventually { listener.calls(token) == 1 }
    }
}
