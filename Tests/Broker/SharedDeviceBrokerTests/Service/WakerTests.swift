import DBusTransport
import Foundation
import Glibc
import NotifyCenterTestKit
import Synchronization
import Testing

@testable import SharedDeviceBroker

@Suite("Apps that owe a cleanup are started by the bus")
struct WakerTests {
    private let directory: SharedDeviceBrokerTests.TemporaryDirectory

    init() throws { directory = try SharedDeviceBrokerTests.TemporaryDirectory() }

    /// How often the service was started.
    private func starts(of name: String = "service") -> Int {
        let marks = try? String(contentsOfFile: directory.file("\(name).marks"), encoding: .utf8)
        return (marks ?? "").split(separator: "\n").count
    }

    /// A service that notes each of its starts, and then fails or stays without taking its name.
    private func service(_ rest: String, name: String = "service") -> String {
        let script = directory.file("\(name).sh")
        let text = "#!/bin/sh\necho started >> '\(directory.file("\(name).marks"))'\n\(rest)\n"
        try? text.write(toFile: script, atomically: true, encoding: .utf8)
        // Run by `sh`: what was written a moment ago may still be open in a child of another test, and is then no program yet (ETXTBSY).
        return "/bin/sh \(script)"
    }

    /// A waker whose one app owes something until the test says otherwise.
    private func waker(
        _ bus: PrivateBus,
        name: String? = "org.example.app",
        owing: Shared<Bool>,
        woken: Shared<[String]>
    ) throws -> Waker {
        Waker(
            connection: try DBusConnection.open(bus.bus),
            busName: { $0 == "app" ? name : nil },
            isOwing: { _ in owing.withLock { $0 } },
            woken: { _, detail in woken.withLock { $0.append(detail) } }
        )
    }

    @Test("one that does not run is started, again and again while it owes, and why it cannot be is said once")
    func failingService() async throws {
        let bus = try PrivateBus(.init(services: ["org.example.app": service("exit 3")]))
        let (owing, woken) = (Shared(true), Shared<[String]>([]))
        let waker = try waker(bus, owing: owing, woken: woken)
        waker.wake("app")
        waker.wake("app")
        try await eventually("three attempts") { starts() >= 3 }
        owing.withLock { $0 = false }
        let details = woken.withLock { $0 }
        #expect(details.count == 1)
        #expect(details.first?.hasPrefix("could not be started as org.example.app: ") == true, "\(details)")
        withExtendedLifetime(waker) {}
    }

    @Test("one that takes its name is started once, and noted")
    func workingService() async throws {
        // A program that takes a name and stays.
        let program = ChildProcess.built("shared-device-broker")
        let service = service(
            """
            echo $$ > '\(directory.file("pid"))'
            exec '\(program)' --bus "$DBUS_STARTER_ADDRESS" --state '\(directory.state)' --configuration /nonexistent
            """
        )
        defer {
            let text = (try? String(contentsOfFile: directory.file("pid"), encoding: .utf8)) ?? ""
            if let identifier = pid_t(text.trimmingCharacters(in: .whitespacesAndNewlines)) {
                kill(identifier, SIGKILL)
            }
        }
        let name = "org.notifycenter.SharedDevice1"
        let bus = try PrivateBus(.init(services: [name: service]))
        let (owing, woken) = (Shared(true), Shared<[String]>([]))
        let asked = Shared(0)
        let waker = Waker(
            connection: try DBusConnection.open(bus.bus),
            busName: { _ in name },
            isOwing: { _ in
                asked.withLock { $0 += 1 }
                return owing.withLock { $0 }
            },
            woken: { _, detail in woken.withLock { $0.append(detail) } }
        )
        waker.wake("app")
        try await eventually("it was looked at three times") { asked.withLock { $0 } >= 3 }
        owing.withLock { $0 = false }
        #expect(woken.withLock { $0 } == ["started as \(name)"])
        #expect(starts() == 1)
    }

    @Test("one that the bus cannot start is left alone; one that owes nothing is, too")
    func nothingToStart() async throws {
        let services = [
            "org.example.app": service("exit 3"), "org.example.other": service("exit 3", name: "other"),
        ]
        let bus = try PrivateBus(.init(services: services))
        let woken = Shared<[String]>([])
        let nameless = try waker(bus, name: nil, owing: Shared(true), woken: woken)
        nameless.wake("app")
        let settled = try waker(bus, owing: Shared(false), woken: woken)
        settled.wake("app")
        // What is started after them is seen: so they would have been.
        let owing = Shared(true)
        let other = try waker(bus, name: "org.example.other", owing: owing, woken: woken)
        other.wake("app")
        try await eventually("the one that owes is started") {
            starts(of: "other") > 0 && !woken.withLock { $0 }.isEmpty
        }
        owing.withLock { $0 = false }
        #expect(starts() == 0)
    }

    @Test("attempts end with the waker")
    func end() async throws {
        let bus = try PrivateBus()
        let asked = Shared(0)
        weak var gone: Waker?
        do {
            let waker = Waker(
                connection: try DBusConnection.open(bus.bus),
                busName: { _ in "org.example.nobody" },
                isOwing: { _ in
                    asked.withLock { $0 += 1 }
                    return true
                },
                woken: { _, _ in }
            )
            gone = waker
            waker.wake("app")
            try await eventually("it has begun") { asked.withLock { $0 } > 0 }
        }
        try await eventually("it is gone") { gone == nil }
    }
}
