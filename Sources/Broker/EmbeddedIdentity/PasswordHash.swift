import CCrypt
import Cryptography
import Glibc
public import Identity

/// A scrypt hash of a password, in libxcrypt's `$7$` form, which other tools can verify, too.
public struct PasswordHash: Sendable {
    /// The work for one hash. The hash contains it.
    public struct Cost: Sendable {
        /// The base-two logarithm of scrypt's N. r is 32 and p is 1, so a hash takes N · 4 KiB of memory.
        private let logN: Int

        /// N = 2^14, libxcrypt's default: 64 MiB and 113 ms a hash, measured on a virtual machine with two cores.
        public static let standard = Cost(logN: 14)
        /// N = 4: 16 KiB and 0.1 ms. For tests.
        public static let minimal = Cost(logN: 2)

        /// The standard cost. In a debug build, the minimal cost if the environment has `SHARED_DEVICE_TEST_HASHES`:
        /// the tests make and check some thousand passwords.
        public static let ofNewHashes: Cost = {
            #if DEBUG
            if getenv("SHARED_DEVICE_TEST_HASHES") != nil { return .minimal }
            #endif
            return .standard
        }()

        /// A new salt of this cost, in crypt's form.
        func makeSetting() throws(PasswordError) -> [UInt8] {
            var setting = [UInt8](repeating: 0, count: Int(CRYPT_GENSALT_OUTPUT_SIZE))
            let made = setting.withUnsafeMutableBytes { buffer in
                let output = buffer.assumingMemoryBound(to: CChar.self)
                // 7 is the default cost (6 to 11 are allowed, N = 2^(count + 7)). The random bytes come from the
                // kernel.
                return crypt_gensalt_rn("$7$", 7, nil, 0, output.baseAddress, CInt(output.count)) != nil
            }
            guard made else { throw .hashingFailed(errno, attempted: "make a salt") }
            setting.removeSubrange((setting.firstIndex(of: 0) ?? setting.endIndex)...)
            // The byte after the prefix is N's logarithm. crypt_gensalt has no count for the tests' cheap hash.
            setting[PasswordHash.prefix.count] = PasswordHash.digits[logN]
            return setting
        }
    }

    fileprivate static let prefix = Array("$7$".utf8)
    /// crypt's base-64 digits in order.
    fileprivate static let digits = Array("./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".utf8)
    /// The size of `struct crypt_data`, whose largest field is too large for Swift to import.
    private static let scratchSize = 32_768

    /// The hash, with its cost and salt.
    public let text: String

    /// Hashes `password` with a new salt. Blocks its thread for the time that the cost demands.
    ///
    /// - Throws: `PasswordError`: `containsNUL`, `tooLong`; `hashingFailed` if memory is exhausted.
    public init(hashing password: Secret, cost: Cost = .standard) throws(PasswordError) {
        text = String(decoding: try Self.crypt(password, cost.makeSetting()), as: UTF8.self)
    }

    /// A stored hash; throws `malformedHash` if it is not in the `$7$` form.
    public init(stored text: String) throws(PasswordError) {
        guard text.utf8.starts(with: Self.prefix), !text.utf8.contains(0) else { throw .malformedHash }
        self.text = text
    }

    private init(unchecked text: String) { self.text = text }

    /// A hash that no password matches. Checking it takes the time of a real hash of this cost.
    public static func decoy(cost: Cost) throws(PasswordError) -> PasswordHash {
        let setting = String(decoding: try cost.makeSetting(), as: UTF8.self)
        return PasswordHash(unchecked: setting + "$" + String(repeating: ".", count: 43))
    }

    /// Whether this is the hash of `password`. Blocks its thread for the time that the hash's cost demands.
    ///
    /// - Throws: `PasswordError`: `containsNUL`, `tooLong`, `malformedHash`, `hashingFailed`.
    public func matches(_ password: Secret) throws(PasswordError) -> Bool {
        ConstantTime.areEqual(try Self.crypt(password, Array(text.utf8)), Array(text.utf8))
    }

    private static func crypt(_ password: Secret, _ setting: [UInt8]) throws(PasswordError) -> [UInt8] {
        guard !password.containsNUL else { throw .containsNUL }
        // The library's limit includes the NUL at the end.
        guard password.count < Int(CRYPT_MAX_PASSPHRASE_SIZE) else { throw .tooLong }
        let scratch = UnsafeMutableRawPointer.allocate(byteCount: scratchSize, alignment: 16)
        scratch.initializeMemory(as: UInt8.self, repeating: 0, count: scratchSize)
        defer {
            explicit_bzero(scratch, scratchSize)
            scratch.deallocate()
        }
        let setting = setting.map { CChar(bitPattern: $0) } + [0]
        let (hash, code): ([UInt8]?, CInt) = password.withCString { phrase in
            guard let output = crypt_rn(phrase, setting, scratch, CInt(scratchSize)) else { return (nil, errno) }
            return ((0..<strlen(output)).map { UInt8(bitPattern: output[$0]) }, 0)
        }
        guard let hash else {
            throw code == EINVAL ? .malformedHash : .hashingFailed(code, attempted: "hash a password")
        }
        return hash
    }
}

/// The reason why a password cannot be hashed or checked.
public enum PasswordError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The password contains a NUL character, where crypt would stop reading.
    case containsNUL
    /// The password has more than 511 bytes.
    case tooLong
    /// The stored hash does not have the form of this program's hashes.
    case malformedHash
    /// The library failed with this `errno`.
    case hashingFailed(CInt, attempted: String)

    /// The cause and the remedy.
    public var description: String {
        switch self {
        case .containsNUL: "the password contains a NUL character; choose one without"
        case .tooLong: "the password is longer than 511 bytes; choose a shorter one"
        case .malformedHash: "the stored password hash is not a scrypt hash; set the user's password again"
        case .hashingFailed(let code, let attempted):
            "could not \(attempted): \(String(cString: strerror(code))); a hash needs 64 MiB of memory"
        }
    }
}
