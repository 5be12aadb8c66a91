import Testing

@testable import SharedDeviceBroker

@Suite("Throttle of wrong passwords")
struct SignInThrottleTests {
    private let start = ContinuousClock.now

    private func after(_ seconds: Int) -> ContinuousClock.Instant { start + .seconds(seconds) }

    @Test("five attempts may fail, the sixth waits 30 s after the fifth")
    func sixth() {
        var throttle = SignInThrottle()
        for second in 0..<5 { #expect(throttle.admit("ada", at: after(second)) == .admitted) }
        #expect(throttle.admit("ada", at: after(5)) == .refused(retryAfter: .seconds(29)))
        #expect(throttle.admit("ada", at: after(33)) == .refused(retryAfter: .seconds(1)))
        #expect(throttle.admit("ada", at: after(34)) == .admitted)
    }

    @Test("after the wait it is one attempt in 30 s, not five")
    func steadyState() {
        var throttle = SignInThrottle()
        for _ in 0..<5 { _ = throttle.admit("ada", at: start) }
        #expect(throttle.admit("ada", at: after(30)) == .admitted)
        #expect(throttle.admit("ada", at: after(31)) == .refused(retryAfter: .seconds(29)))
    }

    @Test("a refused attempt does not prolong the wait")
    func refusedAttempts() {
        var throttle = SignInThrottle()
        for _ in 0..<5 { _ = throttle.admit("ada", at: start) }
        for second in 1..<30 { _ = throttle.admit("ada", at: after(second)) }
        #expect(throttle.admit("ada", at: after(30)) == .admitted)
    }

    @Test("attempts at once do not slip through before the first has failed")
    func attemptsAtOnce() {
        var throttle = SignInThrottle()
        let admitted = (0..<100).count { _ in throttle.admit("ada", at: start) == .admitted }
        #expect(admitted == 5)
    }

    @Test("a success makes earlier failures forgotten")
    func success() {
        var throttle = SignInThrottle()
        for _ in 0..<5 { _ = throttle.admit("ada", at: start) }
        throttle.succeeded("ada")
        for _ in 0..<5 { #expect(throttle.admit("ada", at: start) == .admitted) }
        #expect(throttle.count == 1)
    }

    @Test("an attempt that came to no verdict is not counted")
    func cancellation() {
        var throttle = SignInThrottle()
        for _ in 0..<20 {
            #expect(throttle.admit("ada", at: start) == .admitted)
            throttle.cancelled("ada")
        }
        #expect(throttle.count == 0)
    }

    @Test("one name's failures are not another's")
    func names() {
        var throttle = SignInThrottle()
        for _ in 0..<5 { _ = throttle.admit("ada", at: start) }
        #expect(throttle.admit("grace", at: start) == .admitted)
    }

    @Test("failures are forgotten after a quarter of an hour")
    func forgetting() {
        var throttle = SignInThrottle()
        for _ in 0..<5 { _ = throttle.admit("ada", at: start) }
        for _ in 0..<5 { #expect(throttle.admit("ada", at: after(900)) == .admitted) }
    }

    @Test("a flood of names takes bounded memory, and does not free the name under attack")
    func flood() {
        var throttle = SignInThrottle(capacity: 100)
        for _ in 0..<5 { _ = throttle.admit("ada", at: start) }
        for number in 0..<10_000 { _ = throttle.admit("name\(number)", at: after(1)) }
        #expect(throttle.count == 100)
        #expect(throttle.admit("ada", at: after(2)) == .refused(retryAfter: .seconds(28)))
    }
}
