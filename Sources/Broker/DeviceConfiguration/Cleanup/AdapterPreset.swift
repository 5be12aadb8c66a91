/// The arguments that make a widespread program keep all its data in one directory, for a manifest or `shared-device
/// run`. Each preset was tested with the program; the documentation's table lists the exceptions.
public enum AdapterPreset: String, Sendable, CaseIterable {
    /// Chromium and browsers based on it.
    case chromium
    case firefox
    /// A program built with Electron.
    case electron
    case libreoffice
    /// A program in a Flatpak, with its data in `~/.var/app/ID`, and its `/tmp` in `/run/user/UID/.flatpak/ID`.
    case flatpak

    /// The arguments after the program's name that keep its data below `data`.
    public func arguments(data: String) -> [String] {
        let more =
            switch self {
            case .chromium:
                [
                    "--disk-cache-dir=\(data)/cache", "--no-first-run", "--no-default-browser-check",
                    "--password-store=basic",
                ]
            case .firefox: ["--new-instance"]
            case .electron: ["--password-store=basic"]
            case .libreoffice: ["--norestore"]
            case .flatpak: [String]()
            }
        return place(data: data) + more
    }

    /// The first of these arguments, which name the place. They also identify processes: a process with them among its
    /// arguments works there.
    public func place(data: String) -> [String] {
        switch self {
        case .chromium, .electron: ["--user-data-dir=\(data)/profile"]
        case .firefox: ["--profile", "\(data)/profile"]
        case .libreoffice: ["-env:UserInstallation=file://\(Self.percentEncoded(data))/profile"]
        case .flatpak: []
        }
    }

    /// Checks that the program can work below this directory.
    public func check(data: String) throws(CleanupFlaw) {
        switch self {
        case .chromium, .electron:
            // Chromium creates a socket in TMPDIR, and exits if its path has more than 107 bytes.
            let longest = 107 - "/tmp/.org.chromium.Chromium.XXXXXX/SingletonSocket".utf8.count
            guard data.utf8.count > longest else { return }
            throw CleanupFlaw(
                "“\(data)” is longer than \(longest) bytes, and the program makes a socket below it",
                "choose a shorter path"
            )
        case .firefox, .libreoffice, .flatpak: return
        }
    }

    /// Directories that the program does not create itself.
    public func directories(data: String) -> [String] {
        switch self {
        case .firefox, .chromium, .electron, .libreoffice: ["\(data)/profile"]
        case .flatpak: []
        }
    }

    /// Environment variables that the program needs in addition to ``AdapterEnvironment``.
    public var environment: [String: String] {
        switch self {
        // Crash reports contain pages, and would otherwise be stored below the home directory.
        case .firefox: ["MOZ_CRASHREPORTER_DISABLE": "1"]
        case .chromium, .electron, .libreoffice, .flatpak: [:]
        }
    }

    private static func percentEncoded(_ path: String) -> String {
        let digits = Array("0123456789ABCDEF")
        return path.utf8.reduce(into: "") { text, byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "/"), UInt8(ascii: "-"), UInt8(ascii: "_"),
                UInt8(ascii: "."), UInt8(ascii: "~"):
                text.unicodeScalars.append(Unicode.Scalar(byte))
            default: text += "%\(digits[Int(byte >> 4)])\(digits[Int(byte & 15)])"
            }
        }
    }
}

/// The environment variables that place a program's files below one directory.
public enum AdapterEnvironment {
    /// - Parameter data: The directory that is deleted after each session.
    public static func variables(data: String) -> [String: String] {
        let home = "\(data)/home"
        return [
            "HOME": home,
            "XDG_CONFIG_HOME": "\(home)/.config",
            "XDG_CACHE_HOME": "\(home)/.cache",
            "XDG_DATA_HOME": "\(home)/.local/share",
            "XDG_STATE_HOME": "\(home)/.local/state",
            "XDG_DOWNLOAD_DIR": "\(home)/Downloads",
            "TMPDIR": "\(data)/tmp",
        ]
    }

    /// The directories that programs expect to exist, with the common parent first.
    public static func directories(data: String) -> [String] {
        [data] + variables(data: data).values.sorted()
    }
}
