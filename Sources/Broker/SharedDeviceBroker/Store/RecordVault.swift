package import Basics
import Cryptography
import FoundationEssentials
package import Identity

/// Seals records with AES-256-GCM. Each record has a random nonce, and its use as associated data.
package struct RecordVault: Sendable {
    /// The name of the systemd credential with the key (`LoadCredentialEncrypted=`).
    package static let credential = "token-key"
    /// The shortest key material, in bytes: the length of the key. It has to be random.
    package static let shortestSecret = 32
    /// The largest credential file that is read, in bytes.
    private static let longestSecret = 4096

    private let key: SealingKey

    /// - Throws: `Problem` if the secret is too short for a key.
    package init(secret: [UInt8]) throws(Problem) {
        guard secret.count >= Self.shortestSecret else {
            throw Problem(
                "the credential \(Self.credential) has \(secret.count) bytes; make one of \(Self.shortestSecret) or more: "
                    + "head -c 32 /dev/urandom | systemd-creds encrypt --name=\(Self.credential) - FILE"
            )
        }
        do {
            key = try SealingKey(secret: secret, info: Array("notify-center records 1".utf8))
        } catch {
            throw Problem("the credential \(Self.credential) cannot be used: \(error)")
        }
    }

    /// The vault with the key that systemd has passed to this service; `nil` without one. Blocks for the disk.
    package static func ofService(environment: [String: String]) throws(Problem) -> RecordVault? {
        guard let directory = environment["CREDENTIALS_DIRECTORY"] else { return nil }
        let path = "\(directory)/\(credential)"
        guard FileManager.default.fileExists(atPath: path) else { return nil }
        let content: Data
        do {
            content = try Data(contentsOf: URL(filePath: path))
        } catch {
            throw Problem("the credential \(path) cannot be read: \(error)")
        }
        guard content.count <= longestSecret else {
            throw Problem("the credential \(path) has more than \(longestSecret) bytes; make a new one")
        }
        return try RecordVault(secret: Array(content))
    }

    /// - Throws: `Problem` if the record is too long.
    package func seal(_ record: ProviderRecord, for use: RecordUse) throws(Problem) -> [UInt8] {
        guard record.content.count <= ProviderRecord.longestContent else {
            throw Problem("the provider's record has \(record.content.count) bytes, which is too long to keep")
        }
        do {
            return try key.seal(record.bytes, for: use.associatedData)
        } catch {
            throw Problem("the provider's record cannot be sealed: \(error)")
        }
    }

    /// - Parameter use: The use that the record was sealed for. It opens for no other.
    package func open(_ sealed: [UInt8], for use: RecordUse) throws(Problem) -> ProviderRecord {
        guard let bytes = key.open(sealed, for: use.associatedData), let record = ProviderRecord(bytes: bytes) else {
            throw Problem("the record is damaged, or was sealed by another key or for another session")
        }
        return record
    }
}

// MARK: Bytes

/// Concatenates fields, each after its length, so that different lists of fields have different bytes.
private func joined(_ fields: [[UInt8]]) -> [UInt8] {
    fields.reduce(into: []) { bytes, field in
        withUnsafeBytes(of: UInt32(field.count).littleEndian) { bytes += $0 }
        bytes += field
    }
}

/// - Returns: The fields; `nil` if the bytes are malformed.
private func separatedFields(of bytes: [UInt8]) -> [ArraySlice<UInt8>]? {
    var (rest, fields) = (bytes[...], [ArraySlice<UInt8>]())
    while !rest.isEmpty {
        guard rest.count >= 4 else { return nil }
        let length = rest.prefix(4).reversed().reduce(0) { $0 << 8 | Int($1) }
        rest = rest.dropFirst(4)
        guard length <= rest.count else { return nil }
        fields.append(rest.prefix(length))
        rest = rest.dropFirst(length)
    }
    return fields
}

extension ProviderRecord {
    fileprivate var bytes: [UInt8] {
        let texts = [person.issuer, person.subject].map { Array($0.utf8) }
        // An absent session is a missing last field.
        return joined(texts + [content.withBytes { Array($0) }] + (session.map { [Array($0.utf8)] } ?? []))
    }

    fileprivate init?(bytes: [UInt8]) {
        guard let fields = separatedFields(of: bytes), (3...4).contains(fields.count) else { return nil }
        self.init(
            person: Person(
                issuer: String(decoding: fields[0], as: UTF8.self),
                subject: String(decoding: fields[1], as: UTF8.self)
            ),
            session: fields.count == 4 ? String(decoding: fields[3], as: UTF8.self) : nil,
            content: Secret(bytes: fields[2])
        )
    }
}

/// The use that a record is kept for.
package enum RecordUse: Sendable {
    /// The open session: its number, its issuer and the account.
    case session(epoch: UInt64, issuer: String, account: String)
    /// The provider still has to be told that the session is over.
    case ending(number: UInt64)

    fileprivate var associatedData: [UInt8] {
        let texts =
            switch self {
            case .session(let epoch, let issuer, let account):
                ["notify-center 1", "session", "\(epoch)", issuer, account]
            case .ending(let number): ["notify-center 1", "ending", "\(number)"]
            }
        return joined(texts.map { Array($0.utf8) })
    }
}
