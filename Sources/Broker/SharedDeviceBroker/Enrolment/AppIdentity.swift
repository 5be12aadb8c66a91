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
