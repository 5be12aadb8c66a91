import Testing

@testable import OrganisationIdentity

@Suite("Request rate limit")
struct RequestRateTests {
    @Test("ten requests a second are allowed, and ten at once after a quiet period")
    func rate() {
        let start = ContinuousClock.now
        var rate = RequestRate(perSecond: 10, at: start)
        #expect((0..<30).count { _ in rate.take(at: start) } == 10)
        #expect((0..<30).count { _ in rate.take(at: start + .milliseconds(250)) } == 2)
        #expect((0..<30).count { _ in rate.take(at: start + .seconds(3600)) } == 10)
    }
}
