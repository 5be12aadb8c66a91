import Cryptography
import Foundation
import NotifyCenterTestKit
import Testing

@Suite("The expiry of certificates and revocation lists")
struct CertificateTermTests {
    @Test("only times with two or four digits of the year are parsed")
    func times() {
        func time(_ text: String) -> Double? { CertificateTerm.time(Array(text.utf8)) }
        #expect(time("700101000000Z") == 0 && time("19700101000001Z") == 1)
        #expect(time("261231235959Z") == 1_798_761_599)
        #expect(time("20500228120000Z") == 2_529_662_400 && time("20240229000000Z") == 1_709_164_800)
        for text in ["", "Z", "700101000000", "7001010000000", "701301000000Z", "70010100000xZ", "1970010100000000Z"] {
            #expect(time(text) == nil, "\(text)")
        }
    }

    @Test("the first end of certificates and lists is read, and damage never traps")
    func damage() throws {
        #expect(CertificateTerm.end(inPEM: Self.certificate.utf8) == 2_141_629_277)
        #expect(CertificateTerm.end(inPEM: Self.list.utf8) == 2_055_229_277)
        let both = "a comment\r\n" + (Self.certificate + Self.list).replacing("\n", with: "\r\n")
        #expect(CertificateTerm.end(inPEM: both.utf8) == 2_055_229_277)
        #expect(CertificateTerm.end(inPEM: (Self.certificate + Self.list.dropLast(30)).utf8) == nil)
        let content = Array(Self.certificate.utf8)
        for count in content.indices {
            var damaged = content
            damaged[count] ^= 0x15
            _ = CertificateTerm.end(inPEM: damaged)
            #expect(CertificateTerm.end(inPEM: content.prefix(count)) == nil || count > content.count - 2)
        }
        for flaw in ["", "MIL/////", "MIIBbA==", "M===", "MII_bA=="] {
            let text = "-----BEGIN CERTIFICATE-----\n\(flaw)\n-----END CERTIFICATE-----"
            #expect(CertificateTerm.end(inPEM: text.utf8) == nil, "\(flaw)")
        }
    }

    @Test("a file that is missing, too large or of another kind has no end")
    func files() throws {
        let directory = try TemporaryDirectory("certificates")
        func write(_ text: String, _ name: String) throws {
            try Data(text.utf8).write(to: URL(filePath: "\(directory.path)/\(name)"))
        }
        func reason(_ name: String) -> String? {
            do throws(CertificateFileError) {
                _ = try CertificateTerm.end(ofFile: "\(directory.path)/\(name)")
                return nil
            } catch {
                return error.description
            }
        }
        try write(Self.certificate, "good.pem")
        #expect(reason("good.pem") == nil)
        #expect(reason("none.pem")?.hasPrefix("\(directory.path)/none.pem cannot be read: No such file") == true)
        try write("{}", "other.pem")
        #expect(reason("other.pem")?.contains("no PEM file of certificates") == true)
        try write(Self.certificate + String(repeating: "\n", count: 1 << 20), "large.pem")
        #expect(reason("large.pem")?.contains("more than 1048576 bytes") == true)
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

    /// Ends on 2035-02-16.
    static let list = """
        -----BEGIN X509 CRL-----
        MIGQMDgwCgYIKoZIzj0EAwIwDDEKMAgGA1UEAwwBYRcNMjYxMTMwMDkwMTE3WhcN
        MzUwMjE2MDkwMTE3WjAKBggqhkjOPQQDAgNIADBFAiB9UVwjHkuTRKW/YkNpvQAB
        RsN2mVlfzR+NCzeNNdYcHwIhAI1a4GOmGMjFA7W3ewdYL6eclFnpu5KOSUMfUPmz
        ItbB
        -----END X509 CRL-----

        """
}
