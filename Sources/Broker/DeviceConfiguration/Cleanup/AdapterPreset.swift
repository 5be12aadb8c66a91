import Identity

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

    /// The arguments that name the place. A process with them among its arguments works there.
    public func place(data: String) -> [String] {
        switch self {
        case .chromium, .electron: ["--user-data-dir=\(data)/profile"]
        case .firefox: ["--profile", "\(data)/profile"]
        case .libreoffice: ["-env:UserInstallation=file://\(Self.percentEncoded(data))/profile"]
        case .flatpak: []
        }
    }

    /// Checks that the program can work below this directory.
    public func check(data: String) throws(ValueFlaw) {
        // Chromium creates a socket in TMPDIR, and exits if its path has more than 107 bytes.
        let longest = 107 - "/tmp/.org.chromium.Chromium.XXXXXX/SingletonSocket".utf8.count
        guard self == .chromium || self == .electron, data.utf8.count > longest else { return }
        throw ValueFlaw(
            "“\(data)” is longer than \(longest) bytes, and the program makes a socket below it",
            "choose a shorter path"
        )
    }

    /// Directories that the program does not create itself.
    public func directories(data: String) -> [String] { self == .flatpak ? [] : ["\(data)/profile"] }

    /// Environment variables that the program needs in addition to ``AdapterEnvironment``.
    public var environment: [String: String] {
        // Crash reports contain pages, and would otherwise be stored below the home directory.
        self == .firefox ? ["MOZ_CRASHREPORTER_DISABLE": "1"] : [:]
    }

    private static func percentEncoded(_ path: String) -> String {
        path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
            .map { FormFields.encode(String(decoding: $0, as: UTF8.self)) }.joined(separator: "/")
    }
}

/// The environment variables that place a program's files below one directory.
public enum AdapterEnvironment {
    /// - Parameter data: The directory that is deleted after each session.
    public static func variables(data: String) -> [String: String] {
        let home = "\(data)/home"
        return [
            "HOME": home, "XDG_CONFIG_HOME": "\(home)/.config", "XDG_CACHE_HOME": "\(home)/.cache",
            "XDG_DATA_HOME": "\(home)/.local/share", "XDG_STATE_HOME": "\(home)/.local/state",
            "XDG_DOWNLOAD_DIR": "\(home)/Downloads", "TMPDIR": "\(data)/tmp",
        ]
    }

    /// The directories that programs expect to exist, with the common parent first.
    public static func directories(data: String) -> [String] { [data] + variables(data: data).values.sorted() }
}
