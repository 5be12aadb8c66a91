import DBus
import FoundationEssentials
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Synchronization
import TestProviders
import Testing

@Suite("Back-channel logout")
struct DeviceLogoutTests {
    private func token(_ fault: String) async throws -> String {
        try await FaultyProvider.shared.value.client(fault).page("logout-token")
    }

    @Test("a logout token of the provider reaches the broker once")
    func ended() async throws {
        let device = try await LogoutDevice(fault: "backchannel-rpinitlogout")
        let token = try await token("backchannel-rpinitlogout")
        let answer = try await device.post("logout_token=\(token)")
        #expect(answer.hasPrefix("HTTP/1.1 200 OK\r\n") && answer.contains("Cache-Control: no-store\r\n"), "\(answer)")
        let issuer = try await FaultyProvider.shared.value.issuer("backchannel-rpinitlogout")
        #expect(
            device.events.withLock { $0 } == [
                ["kind": "ended", "issuer": issuer, "subject": "ada", "session": "session-1"]
            ]
        )
        let again = try await device.post("logout_token=\(token)")
        #expect(again.hasPrefix("HTTP/1.1 400") && again.hasSuffix(#"{"error":"invalid_request"}"#), "\(again)")
        #expect(device.events.withLock { $0.count } == 1)
        #expect(!device.device.process.errorText.contains(token.suffix(20)))
    }

    @Test("a logout that the broker refuses is logged and can be repeated")
    func later() async throws {
        let device = try await LogoutDevice(fault: "backchannel-sub-only")
        let token = try await token("backchannel-sub-only")
        for _ in 0..<6 { _ = try await device.post("logout_token=a") }
        device.refuses.withLock { $0 = true }
        #expect(try await device.post("logout_token=\(token)").hasPrefix("HTTP/1.1 400"))
        try await eventually("it is in the log") {
            device.device.process.errorText.contains("the broker does not take it")
        }
        device.refuses.withLock { $0 = false }
        #expect(try await device.post("logout_token=\(token)").hasPrefix("HTTP/1.1 200"))
        #expect(device.events.withLock { $0.first?["session"] == nil && $0.first?["subject"] == "ada" })
    }

    @Test("a logout token without a signature is refused and ends no session")
    func unsigned() async throws {
        let fault = "backchannel-alg-none"
        let device = try await LogoutDevice(fault: fault)
        let answer = try await device.post("logout_token=\(try await token(fault))")
        #expect(answer.hasPrefix("HTTP/1.1 400 Bad Request\r\n"), "\(answer)")
        #expect(device.events.withLock { $0.isEmpty })
    }

    @Test("an invalid request gets the matching HTTP status")
    func strangers() async throws {
        let device = try await LogoutDevice(fault: "none")
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 405), ("nonsense\r\n\r\n", 400), ("POST / HTTP/1.1\r\n\r\n", 411),
            ("POST / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n" + String(repeating: "a", count: 65_537), 413),
        ] {
            let answer = try await device.send(request)
            #expect(answer.hasPrefix("HTTP/1.1 \(status) "), "\(answer.prefix(80))")
        }
        #expect(try await device.post("{}", type: "application/json").hasPrefix("HTTP/1.1 415"))
        #expect(try await device.post("a=b").hasPrefix("HTTP/1.1 400"))
    }

    @Test("a flood of invalid requests delays no logout and adds few lines to the log")
    func flood() async throws {
        let fault = "backchannel-none.flood"
        let device = try await LogoutDevice(fault: fault)
        let start = ContinuousClock.now
        try await withThrowingTaskGroup(of: String?.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    while !Task.isCancelled { _ = try? await device.post("logout_token=a") }
                    return nil
                }
            }
            for _ in 0..<20 {
                let token = try await token(fault)
                #expect(try await device.post("logout_token=\(token)").hasPrefix("HTTP/1.1 200"))
            }
            group.cancelAll()
        }
        #expect(device.events.withLock { $0.count } == 20)
        // A minute has five lines, and a sixth that counts the refusals of the previous minute.
        let minutes = Int((ContinuousClock.now - start) / .seconds(60)) + 1
        let process = device.device.process
        func lines() -> Int {
            process.errorText.components(separatedBy: "a logout from the provider is refused").count - 1
        }
        // Requests are refused in order, so all earlier ones are logged by now.
        _ = try await device.post("logout_token=a")
        process.send(SIGTERM)
        _ = await process.exitStatus()
        #expect((1...6 * minutes).contains(lines()), "\(lines()) lines")
    }
}
