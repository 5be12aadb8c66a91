import DBusTransport
import Dispatch
import NotifyCenter
import NotifyCenterTestKit
import Synchronization
import Testing
import notify

@Suite struct DispatchTests {
    init() { ProcessBus.use() }

    /// Tokens in the order of their calls.
    private final class Calls: Sendable {
        private let tokens = Locked<[Int32]>([])
        var all: [Int32] { tokens.withLock { $0 } }
        func add(_ token: Int32) { tokens.withLock { $0.append(token) } }
    }

    @Test func aHandlerIsCalledOnItsQueueWithItsToken() async throws {
        let (name, calls) = (uniqueName(), Calls())
        let queue = DispatchQueue(label: "test")
        let key = DispatchSpecificKey<Bool>()
        queue.setSpecific(key: key, value: true)
        var token: Int32 = -1
        let registered = notify_register_dispatch(name, &token, queue) { token in
            if DispatchQueue.getSpecific(key: key) == true { calls.add(token) }
        }
        #expect(status(registered) == NOTIFY_STATUS_OK)
        #expect(token >= 2)
        #expect(notify_is_valid_token(token))
        notify_post(name)
        try await eventually { !calls.all.isEmpty }
        #expect(calls.all == [token])
        #expect(status(notify_cancel(token)) == NOTIFY_STATUS_OK)
        #expect(!notify_is_valid_token(token))
        #expect(status(notify_cancel(token)) == NOTIFY_STATUS_INVALID_TOKEN)
    }

    @Test func eachPostOfABurstThatTheQueueHoldsIsACall() async throws {
        let (name, calls) = (uniqueName(), Calls())
        let queue = DispatchQueue(label: "test")
        var token: Int32 = -1
        notify_register_dispatch(name, &token, queue) { calls.add($0) }
        defer { notify_cancel(token) }
        queue.suspend()
        for _ in 0..<10 { notify_post(name) }
        fence()
        queue.resume()
        try await eventually { calls.all.count == 10 }
    }

    // Rules, a.9: at least one delivery after the last post, in bounded memory.
    @Test func aQueueThatStandsStillHoldsSixteenCallsOfAnyNumberOfPosts() async throws {
        let (name, calls) = (uniqueName(), Calls())
        let queue = DispatchQueue(label: "test")
        var token: Int32 = -1
        notify_register_dispatch(name, &token, queue) { calls.add($0) }
        defer { notify_cancel(token) }
        queue.suspend()
        for _ in 0..<1000 { notify_post(name) }
        fence()
        queue.resume()
        queue.sync {}
        #expect(calls.all.count == 16)
        notify_post(name)
        try await eventually { calls.all.count == 17 }
    }

    // Rules, a.7: the library looks at the token again right before the call.
    @Test func aCallThatWaitsDoesNotBeginAfterCancellation() async {
        let (name, calls) = (uniqueName(), Calls())
        let queue = DispatchQueue(label: "test")
        var token: Int32 = -1
        notify_register_dispatch(name, &token, queue) { calls.add($0) }
        queue.suspend()
        notify_post(name)
        fence()
        notify_cancel(token)
        queue.resume()
        queue.sync {}
        #expect(calls.all.isEmpty)
    }

    // Rules, a.7, and CF-W7
    @Test func aHandlerMayCancelItsToken() async throws {
        let (name, calls) = (uniqueName(), Calls())
        let queue = DispatchQueue(label: "test")
        var token: Int32 = -1
        notify_register_dispatch(name, &token, queue) { token in
            notify_cancel(token)
            calls.add(token)
        }
        queue.suspend()
        for _ in 0..<5 { notify_post(name) }
        fence()
        queue.resume()
        try await eventually { !calls.all.isEmpty }
        queue.sync {}
        #expect(calls.all == [token])
    }

    // Rules, a.7: the handler is released on its queue.
    @Test func theHandlerIsReleasedOnItsQueue() async throws {
        final class Witness: Sendable {
            let end: @Sendable () -> Void
            init(_ end: @escaping @Sendable () -> Void) { self.end = end }
            deinit { end() }
        }
        let name = uniqueName()
        let queue = DispatchQueue(label: "test")
        let key = DispatchSpecificKey<Bool>()
        queue.setSpecific(key: key, value: true)
        let ends = Locked<[Bool]>([])
        var token: Int32 = -1
        do {
            let witness = Witness { ends.withLock { $0.append(DispatchQueue.getSpecific(key: key) == true) } }
            notify_register_dispatch(name, &token, queue) { _ in withExtendedLifetime(witness) {} }
        }
        notify_post(name)
        fence()
        #expect(ends.withLock { $0 }.isEmpty)
        notify_cancel(token)
        try await eventually { !ends.withLock { $0 }.isEmpty }
        #expect(ends.withLock { $0 } == [true])
    }

    // Rules, a.10, and CF-W9
    @Test func suspensionHoldsOneNotificationBackForTheLastResumption() async throws {
        let (name, calls) = (uniqueName(), Calls())
        let queue = DispatchQueue(label: "test")
        var (suspended, running): (Int32, Int32) = (-1, -1)
        notify_register_dispatch(name, &suspended, queue) { calls.add($0) }
        notify_register_dispatch(name, &running, queue) { calls.add($0) }
        defer {
            notify_cancel(suspended)
            notify_cancel(running)
        }
        notify_suspend(suspended)
        notify_suspend(suspended)
        for _ in 0..<3 { notify_post(name) }
        fence()
        queue.sync {}
        #expect(calls.all == [running, running, running])
        notify_resume(suspended)
        queue.sync {}
        #expect(calls.all.count == 3)
        // notify_check works for a suspended token like for any other.
        var check: Int32 = -1
        notify_check(suspended, &check)
        #expect(check == 1)
        notify_resume(suspended)
        queue.sync {}
        #expect(calls.all == [running, running, running, suspended])
        #expect(status(notify_resume(suspended)) == NOTIFY_STATUS_OK)
        queue.sync {}
        #expect(calls.all.count == 4)
    }

    @Test func theDarwinCenterHearsAPostAndItsPostIsHeard() async throws {
        let (name, calls) = (uniqueName(), Calls())
        var token: Int32 = -1
        notify_register_dispatch(name, &token, .global()) { calls.add($0) }
        defer { notify_cancel(token) }
        let heard = Locked(0)
        let observation = try await DarwinNotifyCenter.default.observe(NotificationName(name)) { _ in
            heard.withLock { $0 += 1 }
        }
        notify_post(name)
        try await eventually { calls.all.count == 1 && heard.withLock { $0 } == 1 }
        try DarwinNotifyCenter.default.post(NotificationName(name))
        try await eventually { calls.all.count == 2 && heard.withLock { $0 } == 2 }
        observation.cancel()
    }

    // Rules, a.4: without loss, and never on the bus.
    @Test func aPrivateNameReachesThisProcessAlone() async throws {
        let (name, calls) = ("self.\(uniqueName())", Calls())
        let queue = DispatchQueue(label: "test")
        var (token, check): (Int32, Int32) = (-1, -1)
        notify_register_dispatch(name, &token, queue) { calls.add($0) }
        defer { notify_cancel(token) }
        let outside = Locked(0)
        let observation = try await DarwinNotifyCenter.default.observe(NotificationName(name)) { _ in
            outside.withLock { $0 += 1 }
        }
        for _ in 0..<5 {
            #expect(status(notify_post(name)) == NOTIFY_STATUS_OK)
            notify_check(token, &check)
            #expect(check == 1)
        }
        queue.sync {}
        #expect(calls.all.count == 5)
        // A post of that name by another process would not arrive either.
        try DarwinNotifyCenter.default.post(NotificationName(name))
        try await eventually { outside.withLock { $0 } == 1 }
        queue.sync {}
        #expect(calls.all.count == 5)
        #expect(status(notify_set_state(token, 9)) == NOTIFY_STATUS_OK)
        var state: UInt64 = 0
        #expect(status(notify_get_state(token, &state)) == NOTIFY_STATUS_OK)
        #expect(state == 9)
        observation.cancel()
    }

    // Rules, a.1 and a.8, and CF-W11
    @Test func aMissingArgumentIsRefused() {
        var token: Int32 = 5
        #expect(status(notify_register_dispatch(nil, &token, .main) { _ in }) == NOTIFY_STATUS_INVALID_NAME)
        #expect(token == NOTIFY_TOKEN_INVALID)
        #expect(status(notify_register_dispatch("x", nil, .main) { _ in }) == NOTIFY_STATUS_NULL_INPUT)
        #expect(status(notify_register_dispatch("x", &token, nil) { _ in }) == NOTIFY_STATUS_NULL_INPUT)
        #expect(status(notify_register_dispatch("x", &token, .main, nil)) == NOTIFY_STATUS_NULL_INPUT)
        #expect(status(notify_post(nil)) == NOTIFY_STATUS_INVALID_NAME)
        #expect(status(notify_post([CChar(bitPattern: 0xFF), 0])) == NOTIFY_STATUS_INVALID_NAME)
    }

    /// Waits until this process has seen its own posts.
    private func fence() {
        var token: Int32 = -1
        let name = uniqueName("fence")
        notify_register_check(name, &token)
        notify_cancel(token)
    }
}
