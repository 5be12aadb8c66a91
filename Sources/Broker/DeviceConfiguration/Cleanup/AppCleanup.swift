import Glibc

/// How an app is stopped and its data deleted. For a program that does not know shared device mode, this happens after
/// each session. For an app that cleans up by itself, it happens after the deadline.
///
/// ```json
/// "cleanup": { "unit": "kiosk-browser.service", "delete": ["/var/lib/kiosk/profile"], "start": "always" }
/// "cleanup": { "by": "app", "delete": ["/var/lib/orders/database"] }
/// ```
public struct AppCleanup: Sendable, Equatable {
    public enum Program: Sendable, Equatable {
        case unit(String)
        /// A Flatpak, which the adapter starts and ends.
        case flatpak(String)
        /// A command line that the adapter starts and owns, as the app's user.
        case command([String])
        /// The processes of the app's user that run this program, by absolute path. The adapter does not start them.
        case processes(String)

        /// The programs that are written.
        static func all(
            _ unit: String?,
            _ flatpak: String?,
            _ command: [String]?,
            _ processes: String?
        ) -> [Program] {
            let all: [Program?] = [
                unit.map(Self.unit), flatpak.map(Self.flatpak), command.map(Self.command),
                processes.map(Self.processes),
            ]
            return all.compactMap(\.self)
        }

        public var description: String {
            switch self {
            case .unit(let name): name
            case .flatpak(let name): "the Flatpak \(name)"
            case .command(let words): words.first ?? ""
            case .processes(let path): path
            }
        }
    }

    /// The party that cleans up after a session. Under an enforced policy both have the same deadline.
    public enum Cleaner: String, Sendable, CaseIterable {
        /// The adapter, for a program that does not clean up.
        case adapter
        case app
    }

    /// When the adapter starts the program and lets it run.
    public enum Start: String, Sendable, CaseIterable {
        /// While no user is signed in.
        case nobody
        /// While a user is signed in.
        case signedIn = "signed-in"
        /// At both times, with a restart between two sessions.
        case always

        /// Whether the program runs. A user counts as signed in if no cleanup is pending.
        public func runs(isSignedIn: Bool) -> Bool { self == .always || (self == .signedIn) == isSignedIn }
    }

    public let cleaner: Cleaner
    public let program: Program
    /// The user that owns the data. The deletion runs as this user.
    public let user: SystemUser
    /// Absolute paths, checked by ``CleanupPath``. A directory is emptied, but not removed.
    public let delete: [String]
    /// `nil` means that neither the adapter nor the enforcement starts the program.
    public let start: Start?
    /// The directory below which the program keeps its data, as ``AdapterEnvironment`` and the preset tell the program.
    public let data: String?
    public let preset: AdapterPreset?

    /// Whether a cleanup by this manifest also does everything that `other` asks for.
    public func includes(_ other: AppCleanup) -> Bool {
        cleaner == other.cleaner && program == other.program && user.number == other.user.number
            // By bytes: paths that are equal as text may be different files.
            && Set(delete.map { Array($0.utf8) }).isSuperset(of: other.delete.map { Array($0.utf8) })
    }

    /// The unit that identifies an app's adapter.
    public static func unit(of identifier: String) -> String { "shared-device-cleanup@\(identifier).service" }

    /// The unit that enforces cleanups. The broker on the system bus identifies the enforcer by it.
    public static let enforcementUnit = "shared-device-enforcement.service"

    /// The directory of the adapters' records if root runs them.
    public static let stateDirectory = "/var/lib/shared-device-cleanup"
}

struct WrittenCleanup: Decodable, WrittenForm {
    static let form = #"an object such as {"unit": "kiosk-browser.service", "delete": ["/var/lib/kiosk/profile"]}"#

    enum Key: String, CodingKey, CaseIterable { case by, unit, flatpak, command, delete, start, preset, data }

    let by: String?
    let unit: String?
    let flatpak: String?
    let command: [String]?
    let delete: [String]
    let start: String?
    let preset: String?
    let data: String?

    init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: Key.self)
        // An ignored key would leave data that the administrator wants deleted.
        if let unknown = try decoder.unknownKey(beside: Key.self) {
            let known = Key.allCases.map(\.rawValue).joined(separator: ", ")
            throw decoder.invalid("“\(unknown)” in it means nothing", remedy: "the keys are \(known)")
        }
        func value<Value: Decodable>(_ key: Key, _ form: String) throws -> Value? {
            do {
                return try values.optional(key)
            } catch {
                let message = "“\(key.rawValue)” in it is of the wrong type"
                throw decoder.invalid(message, remedy: "write \(form), or leave it out")
            }
        }
        by = try value(.by, "a string")
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
    static let mostPaths = 64

    /// - Parameter identity: The app's identity. It selects the processes to stop if the app cleans up by itself.
    init(_ written: WrittenCleanup, identity: AppManifest.Identity, user: SystemUser?) throws(ValueFlaw) {
        guard let user else {
            throw ValueFlaw(
                "the manifest does not say whose data to delete",
                "add \"user\" to the manifest: the user that the app runs as"
            )
        }
        guard user.number != 0 else {
            throw ValueFlaw(
                "root's programs take no part, because their data would be deleted as root",
                "run the app as a separate user"
            )
        }
        self.user = user
        start = try Self.word(written.start, "start")
        let preset: AdapterPreset? = try Self.word(written.preset, "preset")
        self.preset = preset
        let cleaner = try Self.word(written.by, "by") ?? Cleaner.adapter
        self.cleaner = cleaner
        program = try Self.checked(
            try cleaner == .adapter ? Self.program(written) : Self.program(ofAppItself: written, identity)
        )
        let check = { (text: String) throws(ValueFlaw) in try CleanupPath.written(text, home: user.home) }
        var paths: [String] = []
        var data: String?
        switch (preset, written.data, program) {
        case (.flatpak?, nil, .flatpak(let name)):
            paths.append(try check("~/.var/app/\(name)"))
            // Flatpak keeps the app's /tmp there until a later start; in the cache if the user has no session.
            paths.append(try check("/run/user/\(user.number)/.flatpak/\(name)"))
            paths.append(try check("~/.cache/.flatpak/\(name)"))
        case (.flatpak?, _, _):
            throw ValueFlaw(
                "the preset flatpak knows where the data is, and needs the id",
                "write \"flatpak\", without \"data\""
            )
        case (.some(let preset), nil, _):
            throw ValueFlaw(
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
        let ofPreset = preset == .flatpak ? paths : []
        for text in written.delete {
            let path = try check(text)
            // A later version of the preset may include a path that the manifest also names.
            if ofPreset.contains(path) { continue }
            guard !paths.contains(path) else { throw ValueFlaw("“\(text)” is there twice", "name each path once") }
            paths.append(path)
        }
        // The paths of a preset count as one.
        guard (1...Self.mostPaths).contains(paths.count - max(ofPreset.count - 1, 0)) else {
            throw ValueFlaw(
                paths.isEmpty ? "nothing is deleted" : "it has more than \(Self.mostPaths) paths",
                "write what the program keeps of its users: \"delete\": [\"/var/lib/kiosk/profile\"]"
            )
        }
        delete = paths
    }

    private static func program(_ written: WrittenCleanup) throws(ValueFlaw) -> Program {
        let all = Program.all(written.unit, written.flatpak, written.command, nil)
        guard all.count == 1, let program = all.first else {
            throw ValueFlaw(
                all.isEmpty ? "it does not say what is stopped" : "it says in several ways what is stopped",
                "write one of \"unit\", \"flatpak\" and \"command\""
            )
        }
        return program
    }

    /// The program to stop for an app that cleans up by itself, as the app's identity names it.
    private static func program(
        ofAppItself written: WrittenCleanup,
        _ identity: AppManifest.Identity
    ) throws(ValueFlaw) -> Program {
        guard written.command == nil, written.unit == nil, written.flatpak == nil else {
            throw ValueFlaw(
                "it says what is stopped, and the app cleans up by itself",
                "leave it out: \"unit\", \"flatpak\" or \"executable\" of the manifest already say it"
            )
        }
        let start = written.start
        switch (identity.unit, identity.flatpak, identity.executable) {
        case (let unit?, _, _) where start == nil || start == Start.always.rawValue: return .unit(unit)
        case (nil, _, _) where start != nil, (.some, _, _):
            throw ValueFlaw(
                "“start” in it does not apply to this app, which another program starts",
                "leave it out; for an app that is a unit, write always: then it is started again after it was stopped"
            )
        case (nil, let name?, _): return .flatpak(name)
        case (nil, nil, let path?): return .processes(path)
        case (nil, nil, nil):
            throw ValueFlaw(
                "the manifest does not say which processes are the app's",
                "add \"unit\", \"flatpak\" or \"executable\" to the manifest"
            )
        }
    }

    private static func checked(_ program: Program) throws(ValueFlaw) -> Program {
        switch program {
        case .processes: break
        case .unit(let name):
            // A slice or a target would stop other programs, and the adapter itself.
            let kinds = [".service", ".scope"]
            guard AppIdentifier.isPlausible(name), !name.hasPrefix("-"), !name.contains("/"),
                kinds.contains(where: name.hasSuffix)
            else {
                throw ValueFlaw("“\(name)” is no service", "write the unit's whole name, such as kiosk-browser.service")
            }
        case .flatpak(let name):
            guard AppIdentifier.isReverseDNS(name) else {
                throw ValueFlaw("“\(name)” is no Flatpak's id", "write it as flatpak list shows it")
            }
        case .command(let words):
            guard let first = words.first, !first.isEmpty, !words.contains(where: { $0.utf8.contains(0) }) else {
                throw ValueFlaw(
                    "the command has no program",
                    "write its absolute path first, and its arguments after it"
                )
            }
            guard first.hasPrefix("/") else {
                let remedy = usualPath(of: first).map { "write \($0)" }
                throw ValueFlaw(
                    "“\(first)” is no absolute path",
                    remedy ?? "write the whole path, as command -v shows it"
                )
            }
        }
        return program
    }

    /// The usual path of a program with this name; `nil` if there is none, or if the name is a path.
    private static func usualPath(of name: String) -> String? {
        guard !name.contains("/") else { return nil }
        return ["/usr/bin", "/usr/local/bin", "/bin", "/usr/games", "/usr/sbin", "/sbin"].map { "\($0)/\(name)" }
            .first { access($0, X_OK) == 0 }
    }

    private static func word<Word: RawRepresentable & CaseIterable>(
        _ text: String?,
        _ key: String
    ) throws(ValueFlaw) -> Word? where Word.RawValue == String {
        guard let text else { return nil }
        guard let word = Word(rawValue: text) else {
            let words = Word.allCases.map(\.rawValue).joined(separator: ", ")
            throw ValueFlaw("“\(key)” in it is “\(text)”", "write one of \(words), or leave it out")
        }
        return word
    }
}

extension AppCleanup {
    /// The command line that the adapter owns; `nil` for a unit or processes.
    public var command: [String]? {
        switch program {
        case .unit, .processes: nil
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

extension AppCleanup.Start: Codable {}
extension AdapterPreset: Codable {}

/// The form in the adapter's own record, which outlives the manifest. It is complete, to recognise an unchanged one.
extension AppCleanup: Codable {
    /// The properties' names are the record's keys.
    private struct Record: Codable {
        let user: UInt32
        var unit: String?
        var flatpak: String?
        var command: [String]?
        var processes: String?
        let delete: [String]
        let start: Start?
        let data: String?
        let preset: AdapterPreset?
    }

    /// Asks the system for the user, and so may block.
    public init(from decoder: any Decoder) throws {
        func corrupted(_ description: String) -> DecodingError {
            .dataCorrupted(DecodingError.Context(codingPath: decoder.codingPath, debugDescription: description))
        }
        let record = try Record(from: decoder)
        // As in a manifest: root's files are never deleted, even if the record was altered.
        guard record.user != 0 else { throw corrupted("root takes no part") }
        let programs = Program.all(record.unit, record.flatpak, record.command, record.processes)
        guard programs.count == 1 else { throw corrupted("not one program") }
        self.init(
            cleaner: .adapter,
            program: programs[0],
            user: try SystemUser(number: record.user),
            delete: record.delete,
            start: record.start,
            data: record.data,
            preset: record.preset
        )
    }

    public func encode(to encoder: any Encoder) throws {
        var record = Record(user: user.number, delete: delete, start: start, data: data, preset: preset)
        switch program {
        case .unit(let name): record.unit = name
        case .flatpak(let name): record.flatpak = name
        case .command(let words): record.command = words
        case .processes(let path): record.processes = path
        }
        try record.encode(to: encoder)
    }
}
