package import Glibc

/// A program that asks the broker to let it take part.
package struct AppCaller: Sendable, Equatable {
    /// Which app it says it is, if it says so.
    package let identifier: String?
    /// The program that its process runs, as the kernel says it: absolute, without symbolic links.
    package let executable: String
    /// The user that its process runs as, as the bus says it.
    package let user: uid_t

    package init(identifier: String?, executable: String, user: uid_t) {
        self.identifier = identifier
        self.executable = executable
        self.user = user
    }
}

/// An app that takes part.
package struct AppIdentity: Sendable, Equatable {
    /// What the broker keeps the app's entries under. A manifest's identifier; without a manifest a text that also has the
    /// program and the user, so that no such app can be mistaken for an enrolled one.
    package let identifier: String
    /// The app's manifest, if it is enrolled.
    package let manifest: AppManifest?

    package init(identifier: String, manifest: AppManifest? = nil) {
        self.identifier = identifier
        self.manifest = manifest
    }

    /// Whether the app has a manifest.
    package var isEnrolled: Bool { manifest != nil }
}

/// The forms of an app's identifier.
enum AppIdentifier {
    /// The longest that is taken, in bytes, as for names on a bus.
    static let maximumLength = 255

    /// Whether it has two parts or more with dots between, each of letters, digits, `-` and `_`.
    static func isReverseDNS(_ identifier: String) -> Bool {
        let parts = identifier.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        return identifier.utf8.count <= maximumLength && parts.count >= 2
            && parts.allSatisfy { part in !part.isEmpty && part.allSatisfy(isPartOfName) }
    }

    /// Whether a program may say that this is its identifier: printable ASCII without blanks, so that it is one word in every
    /// log.
    static func isPlausible(_ identifier: String) -> Bool {
        (1...maximumLength).contains(identifier.utf8.count) && identifier.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
    }

    private static func isPartOfName(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
            true
        default: false
        }
    }
}

/// The users of this system.
enum SystemUser {
    /// The number of the user with this name; `nil` where there is none.
    static func identifier(ofUserNamed name: String) -> uid_t? {
        guard !name.isEmpty, !name.utf8.contains(0) else { return nil }
        var buffer = [CChar](repeating: 0, count: 16_384)
        while true {
            var entry = passwd()
            var found: UnsafeMutablePointer<passwd>?
            switch getpwnam_r(name, &entry, &buffer, buffer.count, &found) {
            case 0: return found?.pointee.pw_uid
            case ERANGE where buffer.count < 1_048_576: buffer = [CChar](repeating: 0, count: buffer.count * 2)
            case EINTR: continue
            default: return nil
            }
        }
    }
}
