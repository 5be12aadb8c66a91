import Dispatch
import Glibc
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing
import notify

/// The functions in this process.
@Suite struct FunctionTests {
    init() { ProcessBus.use() }

    // Rules, a.8: holds even if the bus is not asked, because another part of the process already observes the name.
    @Test func aPostIsSeenAfterTheFirstRegistrationOfAnObservedName() throws {
        let name = uniqueName()
        var (token, check): (Int32, Int32) = (-1, -1)
        #expect(status(notify_register_check(name, &token)) == NOTIFY_STATUS_OK)
        defer { notify_cancel(token) }
        notify_check(token, &check)
        for _ in 0..<100 {
            let observed = uniqueName()
            let observation = try DarwinNotifyCenter.default.observe(NotificationName(observed)) { _ in }
            defer { observation.cancel() }
            var other: Int32 = -1
            #expect(status(notify_post(name)) == NOTIFY_STATUS_OK)
            #expect(status(notify_register_check(observed, &other)) == NOTIFY_STATUS_OK)
            #expect(status(notify_check(token, &check)) == NOTIFY_STATUS_OK)
            #expect(check == 1)
            notify_cancel(other)
        }
    }

    // Rules, a.4: nothing is lost, and nothing reaches the bus.
    @Test func aPrivateNameReachesThisProcessAlone() async throws {
        let (name, calls, outside) = ("self.\(uniqueName())", SharedLines(), SharedLines())
        let queue = DispatchQueue(label: "test")
        var (token, check): (Int32, Int32) = (-1, -1)
        notify_register_dispatch(name, &token, queue) { calls.append("\($0)") }
        defer { notify_cancel(token) }
        let observation = try await DarwinNotifyCenter.default.observe(NotificationName(name)) { _ in
            outside.append(name)
        }
        for _ in 0..<5 {
            #expect(status(notify_post(name)) == NOTIFY_STATUS_OK)
            notify_check(token, &check)
            #expect(check == 1)
        }
        queue.sync {}
        #expect(calls.lines.count == 5)
        // A post of that name by another process does not arrive either.
        try DarwinNotifyCenter.default.post(NotificationName(name))
        try await eventually { outside.lines.count == 1 }
        queue.sync {}
        #expect(calls.lines.count == 5)
        observation.cancel()
    }

    // Rules, a.1. The C library reserves the first two real-time signals; by default they end the process.
    @Test func everySignalOfTheProcessIsAcceptedAndNoOtherNumber() {
        for number: Int32 in [-1, 0, 32, 33, 65, .max] {
            var token: Int32 = 7
            let result = status(notify_register_signal(uniqueName(), number, &token))
            #expect(result == NOTIFY_STATUS_INVALID_SIGNAL && token == NOTIFY_TOKEN_INVALID, "\(number)")
        }
        for number in [SIGHUP, SIGURG, SIGUSR2, 34, 64] {
            var token: Int32 = -1
            #expect(status(notify_register_signal(uniqueName(), number, &token)) == NOTIFY_STATUS_OK, "\(number)")
            #expect(status(notify_cancel(token)) == NOTIFY_STATUS_OK, "\(number)")
        }
    }

    @Test func aDescriptorThatTheCallerReplacedOrClosedDoesNoHarm() {
        let name = "self.\(uniqueName())"
        var (descriptor, token, other): (Int32, Int32, Int32) = (-1, -1, -1)
        // The caller's descriptor is replaced by another file with the same number. It is neither used nor closed.
        notify_register_file_descriptor(uniqueName(), &descriptor, 0, &token)
        let stranger = open("/dev/null", O_RDONLY | O_CLOEXEC)
        dup2(stranger, descriptor)
        let reused = notify_register_file_descriptor(uniqueName(), &descriptor, NOTIFY_REUSE, &other)
        #expect(status(reused) == NOTIFY_STATUS_INVALID_FILE)
        notify_cancel(token)
        #expect(fcntl(descriptor, F_GETFD) >= 0)
        close(descriptor)
        close(stranger)
        notify_register_file_descriptor(name, &descriptor, 0, &token)
        close(descriptor)
        // If the pipe had no reader, writing would raise SIGPIPE.
        #expect(status(notify_post(name)) == NOTIFY_STATUS_OK)
        #expect(status(notify_cancel(token)) == NOTIFY_STATUS_OK)
    }

    /// A name that no other test uses.
    private func uniqueName() -> String { "com.example.notify.\(UInt64.random(in: 0 ... .max))" }

    /// Converts the constant to the type of the functions' results.
    private func status(_ value: UInt32) -> Int32 { Int32(value) }
}
