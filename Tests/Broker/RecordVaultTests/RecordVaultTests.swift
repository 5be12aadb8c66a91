import Basics
import Foundation
import Identity
import NotifyCenterTestKit
import Testing

@testable import SharedDeviceBroker

extension ProviderRecord {
    static let adas = ProviderRecord(
        person: ProviderRecord.Person(issuer: "https://login.example", subject: "subject-of-ada"),
        session: "sid-of-ada",
        content: Secret("refresh-token-of-ada")
    )
}

@Suite("Sealed records")
struct RecordVaultTests {
    private static let use = RecordUse.session(epoch: 7, issuer: "https://login.example", account: "1.t")

    private func vault(_ byte: UInt8 = 1) throws -> RecordVault {
        try RecordVault(secret: Array(repeating: byte, count: 32))
    }

    @Test("a sealed record shows nothing of its content, and is opened unchanged")
    func roundTrip() throws {
        for session in ["sid-1", "", nil] {
            let content = Secret(bytes: Array(0...255))
            let record = ProviderRecord(person: ProviderRecord.adas.person, session: session, content: content)
            let sealed = try vault().seal(record, for: Self.use)
            #expect(try vault().open(sealed, for: Self.use) == record)
        }
        let sealed = try vault().seal(ProviderRecord.adas, for: Self.use)
        for text in ["refresh-token-of-ada", "ada", "login.example"] {
            #expect(Data(sealed).firstRange(of: Data(text.utf8)) == nil, "\(text)")
        }
        #expect(try vault().seal(ProviderRecord.adas, for: Self.use) != sealed)
    }

    @Test("a record of another use, and changed or truncated bytes, do not open")
    func bound() throws {
        let sealed = try vault().seal(ProviderRecord.adas, for: Self.use)
        for other in [
            RecordUse.session(epoch: 8, issuer: "https://login.example", account: "1.t"),
            .session(epoch: 7, issuer: "https://login.example/", account: "1.t"),
            .session(epoch: 7, issuer: "https://login.example", account: "2.t"),
            .session(epoch: 7, issuer: "https://login.example1.t", account: ""),
            .ending(number: 7),
        ] {
            #expect(throws: Problem.self, "\(other)") { try vault().open(sealed, for: other) }
        }
        #expect(throws: Problem.self) { try vault(2).open(sealed, for: Self.use) }
        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 1
            #expect(throws: Problem.self) { try vault().open(changed, for: Self.use) }
            #expect(throws: Problem.self) { try vault().open(Array(sealed[..<index]), for: Self.use) }
        }
    }

    @Test("the key comes from systemd's credential; a short one is refused")
    func credential() throws {
        let directory = try TemporaryDirectory()
        #expect(try RecordVault.ofService(environment: [:]) == nil)
        let environment = ["CREDENTIALS_DIRECTORY": directory.path]
        #expect(try RecordVault.ofService(environment: environment) == nil)
        try directory.write(String(repeating: "\u{7}", count: 31), to: "token-key")
        #expect(throws: Problem.self) { try RecordVault.ofService(environment: environment) }
        try directory.write(String(repeating: "\u{7}", count: 32), to: "token-key")
        let sealed = try vault(7).seal(ProviderRecord.adas, for: Self.use)
        let opened = try RecordVault.ofService(environment: environment)?.open(sealed, for: Self.use)
        #expect(opened == ProviderRecord.adas)
    }
}
