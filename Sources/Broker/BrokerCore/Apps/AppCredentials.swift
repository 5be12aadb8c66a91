package import DeviceConfiguration

/// Identifies a program that calls the broker, according to the bus and the kernel.
///
/// Against another process of the same user, ``user``, ``unit`` and ``label`` are **proof**, because a process cannot
/// change its own. ``executable`` and ``flatpak`` are **hints**, which only keep well-behaved apps apart: a process can
/// subvert the app's program with a debugger, or create a namespace with the file that names a Flatpak.
package struct AppCredentials: Sendable, Equatable {
    package enum Sandbox: Sendable, Equatable {
        case absent
        case flatpak(String)
        /// The sandbox does not name its Flatpak, for this reason. The process matches no known app: its program is a
        /// file of the sandbox.
        case unreadable(String)
    }

    /// The user of the process, according to the bus.
    package let user: UInt32
    /// The program of the process: an absolute path without symbolic links, which leads to the same file in the
    /// broker's view of the file system.
    package let executable: String
    /// The system unit of the process; `nil` for a unit of a user's service manager, and for none.
    package let unit: String?
    /// The label of the security module, according to the bus. For AppArmor: `PROFILE (enforce)`.
    package let label: String?
    package let sandbox: Sandbox

    package init(
        user: UInt32,
        executable: String,
        unit: String? = nil,
        label: String? = nil,
        sandbox: Sandbox = .absent
    ) {
        (self.user, self.executable, self.unit) = (user, executable, unit)
        (self.label, self.sandbox) = (label, sandbox)
    }

    package var flatpak: String? { if case .flatpak(let id) = sandbox { id } else { nil } }

    /// The AppArmor profile, if it is enforced. A profile in complain mode confines nothing.
    package var enforcedProfile: String? {
        guard let label, label.hasSuffix(" (enforce)") else { return nil }
        return String(label.dropLast(" (enforce)".count))
    }
}

/// The identity of an app: its manifest, or else its program and user.
package struct AppIdentity: Sendable, Equatable {
    /// The key of the app's entries: the manifest's identifier, or a key with the program and the user, which never
    /// equals one.
    package let identifier: String
    package var manifest: AppManifest?

    package var isEnrolled: Bool { manifest != nil }

    /// The app as this caller runs it. An adapter stands for the user whose data it deletes, even if root runs it.
    func participant(of caller: UInt32) -> Participant {
        Participant(app: identifier, user: manifest?.cleanup?.user.number ?? caller)
    }
}
