import Basics
import DBus
import FoundationEssentials
import HTTPClient
import Identity
import NotifyCenterTestKit
import OpenIDConnect
import Synchronization
import TestProviders
import Testing

@testable import HTTPListening
@testable import OrganisationIdentity

@Suite("Back-channel logout")
struct BackChannelLogoutTests {
    private func request(_ token: String) -> ReceivedRequest {
        ReceivedRequest(
            method: "POST",
            path: "/logout",
            fields: ["content-type": FormFields.contentType],
            body: Array("logout_token=\(token)".utf8)
        )
    }

    @Test("a request gets its status, and a logout is reported with the time of its token")
    func statuses() async throws {
        let logout = BackChannelLogout(try await FaultyProvider.client("none").client) { event in
            Issue.record("\(event)")
        }
        let form = ["content-type": FormFields.contentType]
        for (request, status) in [
            (ReceivedRequest(method: "GET", path: "/logout"), 405),
            (ReceivedRequest(method: "POST", path: "/", fields: ["content-type": "application/json"]), 415),
            (ReceivedRequest(method: "POST", path: "/", fields: form, body: Array("a=b".utf8)), 400),
        ] { #expect(await logout.answer(request).status == status) }
        let test = try await FaultyProvider.client("backchannel-issued-90-s-ago")
        let events = Locked<[ProviderEvent]>([])
        let heard = BackChannelLogout(test.client) { event in events.withLock { $0.append(event) } }
        let asked = Date()
        #expect(await heard.answer(request(try await test.page("logout-token"))).status == 200)
        let date = try #require(events.withLock { $0.first?.date })
        // The provider's clock has whole seconds.
        #expect((asked.addingTimeInterval(-91)...Date().addingTimeInterval(-90)).contains(date), "\(date)")
    }

    @Test("a logout is reported completely even if the provider disconnects")
    func hangUp() async throws {
        let test = try await FaultyProvider.client("backchannel-none.hang-up")
        let (gate, opened) = AsyncStream.makeStream(of: Void.self)
        let report = Locked((hasBegun: false, isCancelled: true))
        let logout = BackChannelLogout(test.client) { _ in
            report.withLock { $0.hasBegun = true }
            for await _ in gate {}
            report.withLock { $0.isCancelled = Task.isCancelled }
        }
        let request = request(try await test.page("logout-token"))
        let answer = Task { await logout.answer(request) }
        try await eventually("the report has begun") { report.withLock { $0.hasBegun } }
        answer.cancel()
        opened.finish()
        #expect(await answer.value.status == 200)
        #expect(!report.withLock { $0.isCancelled })
    }

    @Test("a flood of strangers' tokens does not block a genuine logout")
    func flood() async throws {
        let test = try await FaultyProvider.client("backchannel-none.flooded")
        let foreign = try await FaultyProvider.client("backchannel-none.other-keys").page("logout-token")
        let events = Locked(0)
        let logout = BackChannelLogout(test.client) { _ in events.withLock { $0 += 1 } }
        // The first logout makes the provider's keys be read.
        let first = request(try await test.page("logout-token"))
        #expect(await logout.answer(first).status == 200)
        var statuses: Set<Int> = []
        for _ in 0..<100 { statuses.insert(await logout.answer(request(foreign)).status) }
        #expect(statuses == [400, 429])
        let second = request(try await test.page("logout-token"))
        #expect(await logout.answer(second).status == 200)
        #expect(events.withLock { $0 } == 2)
    }
}

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
