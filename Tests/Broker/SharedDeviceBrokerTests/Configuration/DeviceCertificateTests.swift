import DeviceConfiguration
import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

@Suite("The certificates that a device needs")
struct DeviceCertificateTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func all(_ anchors: String? = nil) -> [DeviceCertificate] {
        DeviceCertificate.all(trustAnchors: anchors, directory: directory.path)
    }

    @Test("a device needs the certificates of its provider and fleet, or none")
    func read() throws {
        #expect(all() == [])
        let file = directory.file("a.pem")
        try directory.write(Self.certificate, to: "a.pem")
        try directory.write(#"{"certificate": "\#(file)", "authority": "\#(file)", "port": 1}"#, to: "fleet-agent.json")
        let found = all(file)
        #expect(found.map(\.use) == [.provider, .fleetAgent, .fleetAuthority])
        #expect(found.allSatisfy { $0.file == file && $0.end == .success(2_141_629_277) })
    }

    @Test("a file that cannot be used is a warning, never a certificate that lasts")
    func unusable() throws {
        #expect(all("/none.pem").first?.warning(now: 0)?.contains("/none.pem cannot be read") == true)
        for flaw in ["", "[]", "{", #"{"certificate": 7}"#, #"{"certificate": ""}"#] {
            try directory.write(flaw, to: "fleet-agent.json")
            #expect(all().count == 2 && all().allSatisfy { $0.warning(now: 0) != nil }, "\(flaw)")
        }
        let long = String(repeating: "x", count: 30_000)
        try directory.write(#"{"certificate": "/\#(long)", "authority": "/\#(long)"}"#, to: "fleet-agent.json")
        #expect(all().allSatisfy { $0.file.count == 4096 && $0.warning(now: 0) != nil })
        chmod(directory.file("fleet-agent.json"), 0o666)
        #expect(all().map { $0.warning(now: 0)?.contains("fleet-agent.json") } == [true])
    }

    @Test("a warning begins 30 days before the end, and has the remedy")
    func warning() throws {
        let certificate = DeviceCertificate(.provider, file: "/a.pem", end: .success(40 * 86400))
        #expect(certificate.warning(now: 10 * 86400) == nil && certificate.days(now: 10 * 86400) == 30)
        let near = "the provider's authority (/a.pem) ends in 29 days; "
        let remedy = "if the provider's certificate is from it, people cannot sign in"
        #expect(certificate.warning(now: 10 * 86400 + 1)?.hasPrefix(near + remedy) == true)
        #expect(certificate.warning(now: 41 * 86400)?.contains("has ended; ") == true)
    }

    /// Ends on 2037-11-12.
    static let certificate = """
        -----BEGIN CERTIFICATE-----
        MIIBbDCCAROgAwIBAgIUel2R5fiu0rFWaTR6xVBE2RByDoowCgYIKoZIzj0EAwIw
        DDEKMAgGA1UEAwwBYTAeFw0yNjExMzAwOTAxMTdaFw0zNzExMTIwOTAxMTdaMAwx
        CjAIBgNVBAMMAWEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQfqr9lhzMSj8NG
        B9/0njJD4drz7iX0Dl175uDTLSZRM9imPsgtqkvJ7ELc+KZhQG0fFRxTCbiqzX3v
        ODyi0KI+o1MwUTAdBgNVHQ4EFgQUB/06Y2cMEutfiSOCC8cnLIk7/howHwYDVR0j
        BBgwFoAUB/06Y2cMEutfiSOCC8cnLIk7/howDwYDVR0TAQH/BAUwAwEB/zAKBggq
        hkjOPQQDAgNHADBEAiBV2OedA/dYMVPKnPbdVLHG6B5pcUlmc/BthL6s+dTjFAIg
        BFfR/ay2KYHy+5E93fJW0Hk3x8syyyhS8wVwAYJhk5Q=
        -----END CERTIFICATE-----

        """
}
