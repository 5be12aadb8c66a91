/// What is known of a widespread program, so that a manifest or `shared-device run` can name it: by which arguments it keeps everything in one
/// directory. Data; each line was tried with the program, or says so in the documentation's table.
package enum AdapterPreset: String, Sendable, CaseIterable {
    /// Chromium, and browsers made of it.
    case chromium
    case firefox
    /// A program made with Electron.
    case electron
    case libreoffice
    /// A program in a Flatpak, whose data is in `~/.var/app/ID`, and its `/tmp` in `/run/user/UID/.flatpak/ID`.
    case flatpak

    /// The words that follow the program's name so that it keeps its data below `data`.
    package func arguments(data: String) -> [String] {
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

    /// The first of these words: they name the place, and no program has them among its arguments that does not work there.
    package func place(data: String) -> [String] {
        switch self {
        case .chromium, .electron: ["--user-data-dir=\(data)/profile"]
        case .firefox: ["--profile", "\(data)/profile"]
        case .libreoffice: ["-env:UserInstallation=file://\(Self.percentEncoded(data))/profile"]
        case .flatpak: []
        }
    }

    /// Whether the program can work below this directory.
    ///
    /// - Throws: ``CleanupFlaw``.
    package func check(data: String) throws(CleanupFlaw) {
        switch self {
        case .chromium, .electron:
            // Chromium makes a socket in TMPDIR, and ends where its path has more than 107 bytes.
            let longest = 107 - "/tmp/.org.chromium.Chromium.XXXXXX/SingletonSocket".utf8.count
            guard data.utf8.count > longest else { return }
            throw CleanupFlaw(
                "“\(data)” is longer than \(longest) bytes, and the program makes a socket below it",
                "choose a shorter path"
            )
        case .firefox, .libreoffice, .flatpak: return
        }
    }

    /// Directories that the program does not make itself.
    package func directories(data: String) -> [String] {
        switch self {
        case .firefox, .chromium, .electron, .libreoffice: ["\(data)/profile"]
        case .flatpak: []
        }
    }

    /// Variables that the program needs beside ``AdapterEnvironment``.
    package var environment: [String: String] {
        switch self {
        // Reports of crashes contain pages, and go below the home directory otherwise.
        case .firefox: ["MOZ_CRASHREPORTER_DISABLE": "1"]
        case .chromium, .electron, .libreoffice, .flatpak: [:]
        }
    }

    /// A path as a URL has it.
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

/// The variables by which programs find their places, all of them below one directory.
package enum AdapterEnvironment {
    /// - Parameter data: the directory that is deleted after each session.
    package static func variables(data: String) -> [String: String] {
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

    /// The directories that programs expect to be there, the one above them first.
    package static func directories(data: String) -> [String] {
        [data] + variables(data: data).values.sorted()
    }
}
