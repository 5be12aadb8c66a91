/// How a program takes part that knows nothing of shared device mode: what is stopped after a session, what is deleted, and when it runs again.
///
/// ```json
/// "cleanup": { "unit": "kiosk-browser.service", "delete": ["/var/lib/kiosk/profile"], "start": "always" }
/// ```
package struct AppCleanup: Sendable, Equatable {
    /// What the program is.
    package enum Program: Sendable, Equatable {
        /// A unit of the service manager.
        case unit(String)
        /// A Flatpak, which the adapter starts and ends.
        case flatpak(String)
        /// A command line that the adapter starts and owns, as the app's user.
        case command([String])

        /// For people.
        package var description: String {
            switch self {
            case .unit(let name): name
            case .flatpak(let name): "the Flatpak \(name)"
            case .command(let words): words.first ?? ""
            }
        }
    }

    /// When the adapter starts the program, and lets it run.
    package enum Start: String, Sendable, CaseIterable {
        /// While nobody is signed in.
        case nobody
        /// While somebody is signed in.
        case signedIn = "signed-in"
        /// At both times; it is started anew between two sessions.
        case always

        /// Whether the program runs.
        ///
        /// - Parameter isSignedIn: whether somebody is signed in, with nothing left to clean up.
        package func runs(isSignedIn: Bool) -> Bool { self == .always || (self == .signedIn) == isSignedIn }
    }

    package let program: Program
    /// The user whose data it is. The deletion runs as this user.
    package let user: SystemUser
    /// Absolute paths, checked by ``CleanupPath``. A directory is emptied and stays.
    package let delete: [String]
    /// `nil` means that the adapter never starts it.
    package let start: Start?
    /// The directory that the preset keeps the program's data in.
    package let data: String?
    package let preset: AdapterPreset?

    /// The unit of an app's adapter, by which it is known.
    package static func unit(of identifier: String) -> String { "shared-device-cleanup@\(identifier).service" }

    /// Where the adapter's record of an app is when root runs it.
    package static let stateDirectory = "/var/lib/shared-device-cleanup"
}

/// The key as it is written.
struct WrittenCleanup: Decodable, WrittenForm {
    static let form =
        "an object such as {\"unit\": \"kiosk-browser.service\", \"delete\": [\"/var/lib/kiosk/profile\"]}"

    enum Key: String, CodingKey, CaseIterable {
        case unit, flatpak, command, delete, start, preset, data
    }

    let unit: String?
    let flatpak: String?
    let command: [String]?
    let delete: [String]
    let start: String?
    let preset: String?
    let data: String?

    init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: Key.self)
        // A key that means nothing would leave data that somebody wants deleted.
        if let unknown = try decoder.unknownKeys(beside: Key.self).first {
            let known = Key.allCases.map(\.rawValue).joined(separator: ", ")
            throw DecodingError.invalid(
                "“\(unknown)” in it means nothing",
                remedy: "the keys are \(known)",
                at: decoder.codingPath
            )
        }
        func value<Value: Decodable>(_ key: Key, _ form: String) throws -> Value? {
            do {
                return try values.optional(key)
            } catch {
                throw DecodingError.invalid(
                    "“\(key.rawValue)” in it is of the wrong type",
                    remedy: "write \(form), or leave it out",
                    at: decoder.codingPath
                )
            }
        }
        unit = try value(.unit, "a string")
        flatpak = try value(.flatpak, "a string")
        command = try value(.command, "an array of strings, the program first")
        delete = try value(.delete, "an array of paths") ?? []
        start = try value(.start, "a string")
        preset = try value(.preset, "a string")
        data = try value(.data, "a path")
    }
}

extension AppCleanup {
    /// How many paths one app may have.
    static let mostPaths = 64

    init(_ written: WrittenCleanup, identifier: String, user: SystemUser?) throws(CleanupFlaw) {
        guard let user else {
            throw CleanupFlaw(
                "it needs to be known whose data it is",
                "add \"user\" beside it: the user that the app runs as"
            )
        }
        guard user.number != 0 else {
            throw CleanupFlaw(
                "root's programs take no part: what they keep is deleted as root",
                "let the app run as a user of its own"
            )
        }
        self.user = user
        start = try Self.word(written.start, "start")
        let preset: AdapterPreset? = try Self.word(written.preset, "preset")
        self.preset = preset
        program = try Self.program(written, preset)
        let check = { (text: String) throws(CleanupFlaw) in try CleanupPath.checked(text, home: user.home) }
        var paths: [String] = []
        var data: String?
        switch (preset, written.data, program) {
        case (.flatpak?, nil, .flatpak(let name)): paths.append(try check("~/.var/app/\(name)"))
        case (.flatpak?, _, _):
            throw CleanupFlaw(
                "the preset flatpak knows where the data is, and needs the id",
                "write \"flatpak\", without \"data\""
            )
        case (.some(let preset), nil, _):
            throw CleanupFlaw(
                "the preset \(preset.rawValue) needs \"data\"",
                "write the directory that it is to keep everything in"
            )
        case (_, let text?, _):
            let path = try check(text)
            try preset?.check(data: path)
            data = path
            paths.append(path)
        case (nil, nil, _): break
        }
        self.data = data
        for text in written.delete {
            let path = try check(text)
            guard !paths.contains(path) else { throw CleanupFlaw("“\(text)” is there twice", "name each path once") }
            paths.append(path)
        }
        guard (1...Self.mostPaths).contains(paths.count) else {
            throw CleanupFlaw(
                paths.isEmpty ? "nothing is deleted" : "it has more than \(Self.mostPaths) paths",
                "write what the program keeps of its users: \"delete\": [\"/var/lib/kiosk/profile\"]"
            )
        }
        delete = paths
    }

    private static func program(_ written: WrittenCleanup, _ preset: AdapterPreset?) throws(CleanupFlaw) -> Program {
        let all: [Program] = [
            written.unit.map(Program.unit), written.flatpak.map(Program.flatpak), written.command.map(Program.command),
        ]
        .compactMap { $0 }
        guard all.count == 1, let program = all.first else {
            throw CleanupFlaw(
                all.isEmpty ? "it does not say what is stopped" : "it says in several ways what is stopped",
                "write one of \"unit\", \"flatpak\" and \"command\""
            )
        }
        switch program {
        case .unit(let name):
            // A slice or a target would stop the programs of others, and the adapter itself.
            let kinds = [".service", ".scope"]
            guard AppIdentifier.isPlausible(name), !name.hasPrefix("-"), !name.contains("/"),
                kinds.contains(where: name.hasSuffix)
            else {
                throw CleanupFlaw(
                    "“\(name)” is no service",
                    "write the unit's whole name, such as kiosk-browser.service"
                )
            }
        case .flatpak(let name):
            guard AppIdentifier.isReverseDNS(name) else {
                throw CleanupFlaw("“\(name)” is no Flatpak's id", "write it as flatpak list shows it")
            }
        case .command(let words):
            guard let first = words.first, first.hasPrefix("/"), !words.contains(where: { $0.utf8.contains(0) }) else {
                throw CleanupFlaw(
                    "the command has no program",
                    "write its absolute path first, and its arguments after it"
                )
            }
        }
        return program
    }

    private static func word<Word: RawRepresentable & CaseIterable>(
        _ text: String?,
        _ key: String
    ) throws(CleanupFlaw) -> Word? where Word.RawValue == String {
        guard let text else { return nil }
        guard let word = Word(rawValue: text) else {
            let words = Word.allCases.map(\.rawValue).joined(separator: ", ")
            throw CleanupFlaw("“\(key)” in it is “\(text)”", "write one of \(words), or leave it out")
        }
        return word
    }
}

extension AppCleanup {
    /// The command line that the adapter owns; `nil` for a unit.
    package var command: [String]? {
        switch program {
        case .unit: nil
        case .flatpak(let name): ["/usr/bin/flatpak", "run", name]
        case .command(let words):
            if let preset, let data, let program = words.first {
                [program] + preset.arguments(data: data) + words.dropFirst()
            } else {
                words
            }
        }
    }
}
