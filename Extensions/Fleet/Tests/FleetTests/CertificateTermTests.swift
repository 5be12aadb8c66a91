import Cryptography
import Fleet
import FleetStage
import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

@Suite("The expiry of a fleet's certificates")
struct CertificateTermTests {
    @Test("an end is warned of from 30 days before; impossible ends hide no other")
    func agent() {
        var agent = AgentTests.agent(.nobody(1))
        let (wall, day) = (Moment.at(10).wall, 86400.0)
        let far = agent.handle(.certificate(end: .success(wall + 31 * day)), now: .at(10)).report
        #expect(far?.certificateEnd == wall + 31 * day && far?.problems == [])
        let near = agent.handle(.certificate(end: .success(wall + 29.5 * day)), now: .at(20))
        #expect(near.report?.problems == ["the certificate ends in 29 days; enrol the device again"])
        #expect(near.contains { $0.word == "note" })
        let renewed = agent.handle(.certificate(end: .success(wall + 397 * day)), now: .at(30)).report
        #expect(renewed?.problems == [])
        let unreadable = Result { () throws(CertificateFileError) in try CertificateTerm.end(ofFile: "/none.pem") }
        let lost = agent.handle(.certificate(end: unreadable), now: .at(40)).report
        #expect(lost?.certificateEnd == nil && lost?.problems.first?.hasPrefix("/none.pem cannot be read") == true)
        // Ends that devices report.
        let now = 1_800_000_000.0
        var ends = CertificateEnds()
        for end in [0, now + 400 * day, now + 19.5 * day, 253_402_300_799] { ends.add(end, now: now) }
        #expect(ends.next == now + 19.5 * day)
        #expect(
            ends.warning(now: now) == "certificates of 1 device have ended, "
                + "certificates of 1 device end within 30 days, and the first ends in 19 days; enrol them again"
        )
        var sound = CertificateEnds()
        sound.add(now + 400 * day, now: now)
        #expect(sound.warning(now: now) == nil)
    }

    @Test("the operator is warned of certificates that end soon, and metrics have the ends")
    func fleet() async throws {
        let stage = try await FleetStage(enrolling: ["a"])
        let now = Date().timeIntervalSince1970
        let days = try ["controller.pem", "authority.pem", "authority.crl"].map {
            CertificateTerm.days(until: try CertificateTerm.end(ofFile: stage.path("pki/\($0)")) + 60, now: now)
        }
        #expect(days == [397, 3650, 3650])
        try await stage.certify("a", days: 20)
        try await stage.certify("controller", days: 10)
        let listed = try await stage.fleet("certificates", stage.path("pki"))
        #expect(listed.status == EX_TEMPFAIL, "\(listed)")
        #expect(listed.lines.dropFirst().map { $0.prefix { $0 != " " } }.prefix(3) == ["controller", "a", "localhost"])
        #expect(listed.lines.contains { $0.hasPrefix("the revocation list ") && $0.contains("3649 days") }, "\(listed)")
        let list = stage.path("pki/authority.crl")
        try FileManager.default.moveItem(atPath: list, toPath: list + ".away")
        let incomplete = try await stage.fleet("certificates", stage.path("pki"))
        #expect(incomplete.status == EX_NOINPUT && incomplete.errors.contains("authority.crl cannot be read"))
        try FileManager.default.moveItem(atPath: list + ".away", toPath: list)
        let certified = try await stage.fleet("certify", stage.path("pki"), "b")
        #expect(certified.errors.contains("controller: it ends in 9 days"), "\(certified.errors)")

        try await stage.startController()
        _ = try await stage.fleet("device", "add", "a")
        // Its broker is missing, which it reports.
        let agent = try await stage.startAgent("a", bus: stage.bus.address)
        try await eventually("the operator is warned") {
            let devices = try await stage.fleet("devices")
            return devices.lines.contains { $0.hasPrefix("a ") && $0.contains("the certificate ends in 19 days") }
                && devices.errors.contains("the controller's certificate ends in 9 days; enrol the controller again")
                && devices.errors.contains("certificates of 1 device end within 30 days, and the first ends in 19 days")
        }
        let metrics = try await stage.fleet("metrics").lines
        #expect(metrics.contains("shared_device_fleet_certificates_ending 1"), "\(metrics)")
        for of in ["controller", "devices"] {
            #expect(metrics.contains { $0.hasPrefix(#"shared_device_fleet_certificate_end_seconds{of="\#(of)"} 1"#) })
        }
        _ = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "0")
        let status = try await stage.fleet("status", "--json")
        #expect(status.lines.contains { $0.contains("\"warning\"") && $0.contains("ends in 9 days") }, "\(status)")
        withExtendedLifetime(agent) {}
    }
}
