import Basics
import DBus
import FoundationEssentials
@_spi(Extensions) public import SharedDevice
import Synchronization

/// The propagation of one sign-out to the apps of a test device.
///
/// ``App/heardAfter``, ``App/begunAfter`` and ``App/cleanedAfter`` come from the broker's ledger and count from the
/// sign-out's commit to the app's request or report. ``App/seenCleanAfter``, faults and process lifetimes are the kit's
/// own observations.
public struct PropagationReport: Sendable, CustomStringConvertible {
    /// One app of the device.
    public struct App: Sendable, Hashable {
        /// The app's identifier.
        public let identifier: String
        /// Its progress according to the ledger; `nil` if it took no part, because it was never given the session's
        /// account.
        public let progress: CleanupReport.Progress?
        /// The time at which it asked the broker and was told; `nil` if it did not.
        public let heardAfter: Duration?
        /// The time at which it reported that it began; `nil` if it did not. Many apps do not report this.
        public let begunAfter: Duration?
        /// The time at which it reported success or failure; `nil` before.
        public let cleanedAfter: Duration?
        /// The time at which the kit saw its report of a finished cleanup; `nil` before.
        public let seenCleanAfter: Duration?
        /// Its result in words.
        public let summary: String
        /// Whether it had a process at the sign-out.
        public let ranAtSignOut: Bool
        /// Whether it had a process at the time of the report.
        public let isRunning: Bool

        /// Whether it has learned of the sign-out. True also if it took no part and had no process at the sign-out.
        public var hasHeard: Bool { progress == nil ? !ranAtSignOut : heardAfter != nil }
        /// Whether it has reported that the data is deleted. True also if it took no part and had no process at the
        /// sign-out.
        public var isClean: Bool { progress == nil ? !ranAtSignOut : progress == .finished }
    }

    /// The session that ended, by the epoch of its sign-in.
    public let session: UInt64
    /// The user who was signed out.
    public let user: String
    /// The apps of the device, in the device's order.
    public let apps: [App]
    /// The events since the sign-in, in chronological order.
    public let events: [DeviceEvent]
    /// The time from the sign-out to this report.
    public let observedFor: Duration
    /// The state of the round; `nil` until the broker reports it.
    public let outcome: CleanupReport.Outcome?
    /// Keeps the device and its directories alive for the search.
    private let device: TestDevice
    private let copies: [String: [String]]?

    init(of device: TestDevice) throws(TestDeviceError) {
        let state = device.state.withLock { ($0.signOut, $0.observer, $0.copies) }
        guard let signOut = state.0, let observer = state.1 else {
            throw TestDeviceError(.notThere, "there is nothing to report: no person has signed out")
        }
        let round = observer.report
        let origin = Self.origin(of: signOut, endedAt: round?.endedAt)
        self.device = device
        copies = state.2
        session = observer.session
        user = signOut.user
        outcome = round?.outcome
        observedFor = .now - origin
        apps = device.apps.map { app in
            let entry = round?.apps.first { TestApp.isNamed($0.identifier, app.identifier) }
            return App(
                identifier: app.identifier,
                progress: entry?.progress,
                heardAfter: entry?.toldAfter.map { .seconds($0) },
                begunAfter: entry?.begunAfter.map { .seconds($0) },
                cleanedAfter: entry?.finishedAfter.map { .seconds($0) },
                seenCleanAfter: observer.seen(entry?.identifier ?? app.identifier, .finished).map { $0 - origin },
                summary: Self.summary(app, entry, signOut, origin),
                ranAtSignOut: signOut.running.contains(app.identifier),
                isRunning: app.isRunning
            )
        }
        events = Self.events(device, round, signOut, origin)
    }

    var hasRound: Bool { outcome != nil }

    /// Whether every app that was given the account, or ran at the sign-out, has reported that the data is deleted.
    public var isClean: Bool { hasRound && apps.allSatisfy(\.isClean) }

    /// Throws unless every app has reported that it is clean, and at least one took part.
    ///
    /// - Throws: ``TestDeviceError/Code/notClean``, ``TestDeviceError/Code/provesNothing``; both describe all apps.
    public func requireClean() throws(TestDeviceError) {
        guard isClean else { throw TestDeviceError(.notClean, "not all apps are clean\n\(self)") }
        guard apps.contains(where: { $0.progress != nil }) else {
            throw TestDeviceError(.provesNothing, "no app took part in the session, so nothing is proved\n\(self)")
        }
    }

    /// Like ``requireClean()``, and also searches the directories of all apps for the markers. No marker may be left in
    /// names or contents, in UTF-8 or UTF-16. Each marker must have been there right before the sign-out.
    ///
    /// - Throws: like ``requireClean()``, and ``TestDeviceError/Code/filesFailed``.
    public func requireClean(of markers: Marker...) throws(TestDeviceError) {
        try requireClean()
        guard let copies else {
            throw TestDeviceError(.provesNothing, "the apps' directories were not copied before the sign-out")
        }
        var before: Set<String> = []
        for directories in copies.values {
            before.formUnion(try DeviceApp.findings(of: markers, in: directories).map(\.marker))
        }
        if let marker = markers.first(where: { !before.contains($0.kind) }) {
            throw TestDeviceError(
                .provesNothing,
                "\(marker.kind) was in no app's data right before the sign-out, so its absence now proves nothing"
            )
        }
        let lines = try findings(of: markers).map { "\($0.app): \($0.finding)" }
        guard lines.isEmpty else {
            let text = lines.prefix(20).joined(separator: "\n") + (lines.count > 20 ? "\n… \(lines.count) in all" : "")
            throw TestDeviceError(.notClean, "data of \(user) is left\n\(text)\n\(self)")
        }
    }

    /// Returns the places of the markers in the apps' directories, at the time of the call.
    ///
    /// - Throws: ``TestDeviceError/Code/filesFailed``.
    public func findings(of markers: [Marker]) throws(TestDeviceError) -> [(app: String, finding: ByteSearch.Finding)] {
        var found: [(app: String, finding: ByteSearch.Finding)] = []
        for app in device.apps { found += try app.findings(of: markers).map { (app.identifier, $0) } }
        return found
    }

    /// A table of the apps.
    public var description: String {
        let clean = apps.count { $0.isClean }
        let head =
            "sign-out of \(user), session \(session): \(clean) of \(Text.count(apps.count, "app")) \(clean == 1 ? "is" : "are") clean"
        let names = AppNames(apps.map(\.identifier))
        let rows = apps.map { app in
            let times = [app.heardAfter, app.begunAfter, app.cleanedAfter].map(Text.milliseconds)
            return [names[app.identifier]] + times + [app.summary]
        }
        return head + "\n" + Text.table(["APP", "HEARD", "BEGAN", "CLEAN", "STATE"], rows)
    }
}

extension PropagationReport {
    /// The monotonic time of the sign-out's commit. The broker reports the wall-clock time; the result is clamped to
    /// the interval between the kit's request and the broker's response.
    private static func origin(of signOut: TestDevice.SignOut, endedAt: Date?) -> ContinuousClock.Instant {
        guard let endedAt else { return signOut.asked }
        let instant = ContinuousClock.now - .seconds(Date().timeIntervalSince(endedAt))
        return min(max(instant, signOut.asked), signOut.answered)
    }

    private static func summary(
        _ app: DeviceApp,
        _ entry: CleanupReport.App?,
        _ signOut: TestDevice.SignOut,
        _ origin: ContinuousClock.Instant
    ) -> String {
        let process =
            if let end = app.end {
                "its process ended \(DeviceApp.text(status: end.status)), "
                    + (end.instant < origin
                        ? "before the sign-out" : "\(Text.milliseconds(end.instant - origin)) after it")
            } else if app.isStopped {
                "its process is stopped"
            } else {
                app.isRunning ? "" : "it does not run"
            }
        let more = process.isEmpty ? "" : "; \(process)"
        guard let entry else {
            guard signOut.running.contains(app.identifier) else { return "took no part; it did not run" }
            return "ran, but the broker knows of no app of this identifier that was given the account" + more
        }
        let detail = entry.detail.map { ": \($0)" } ?? ""
        return switch entry.progress {
        case .owed: "has not heard of it\(more)"
        case .told: "has heard, reported nothing\(more)"
        case .begun: "began, and is not done\(more)"
        case .failed: "could not clean up\(detail)\(more)"
        case .finished: "clean\(detail)"
        case .waived: "waived by an administrator\(detail)"
        case .enforced: "late: stopped, and its data deleted\(detail)"
        }
    }

    private static func events(
        _ device: TestDevice,
        _ round: CleanupReport?,
        _ signOut: TestDevice.SignOut,
        _ origin: ContinuousClock.Instant
    ) -> [DeviceEvent] {
        let entries = device.host.log.entries
        let signIn = entries.last { $0.kind == .signIn && $0.instant <= signOut.asked }
        let seen = entries.filter { entry in signIn.map { entry.instant >= $0.instant } ?? true }.map { entry in
            // All other times count from the sign-out.
            DeviceEvent(
                milliseconds: entry.kind == .signOut ? 0 : Text.number(entry.instant - origin),
                lane: entry.lane,
                kind: entry.kind,
                text: entry.text
            )
        }
        let told = (round?.apps ?? []).flatMap { app -> [DeviceEvent] in
            guard let lane = device.apps.first(where: { TestApp.isNamed(app.identifier, $0.identifier) })?.identifier
            else { return [] }
            let end: (DeviceEvent.Kind, String) =
                switch app.progress {
                case .failed: (.failed, "reports that it could not clean up")
                case .waived: (.waived, "is declared clean by an administrator")
                case .enforced: (.enforced, "is late, and is stopped and its data deleted")
                default: (.finished, "reports that it is clean")
                }
            let detail = app.detail.map { ": \($0)" } ?? ""
            let marks: [(Double?, DeviceEvent.Kind, String)] = [
                (app.toldAfter, .told, "asks, and is told of the sign-out"),
                (app.begunAfter, .begun, "reports that it began"), (app.finishedAfter, end.0, end.1 + detail),
            ]
            return marks.compactMap { time, kind, text in
                time.map { DeviceEvent(milliseconds: $0 * 1000, lane: lane, kind: kind, text: text) }
            }
        }
        return (seen + told).sorted { $0.milliseconds < $1.milliseconds }
    }
}

/// The parts of the page that draw timelines: the console's own modules and style, and the result in their format. The
/// files come from the folder `Console`, so that there is only one drawing code.
enum TimelinePage {
    /// Each module precedes the modules that import it.
    private static let modules: [(name: String, bytes: [UInt8])] = [
        ("texts", PackageResources.texts_js), ("dom", PackageResources.dom_js), ("words", PackageResources.words_js),
        ("day", PackageResources.day_js), ("rounds", PackageResources.rounds_js),
        ("drawing", PackageResources.drawing_js), ("report", PackageResources.report_js),
    ]

    static var style: String { String(decoding: PackageResources.shared_device_css, as: UTF8.self) }

    /// A single script without imports: each module becomes a function that returns its exports.
    static var script: String {
        let parts = modules.map { bundled($0.name, String(decoding: $0.bytes, as: UTF8.self)) }
        let calls = [
            // The page is in English, as the rest of the report.
            "module_texts.useTexts(\(String(decoding: PackageResources.texts_en_json, as: UTF8.self)), \"en\");",
            "module_report.drawReport(JSON.parse(document.getElementById(\"result\").textContent));",
        ]
        return (parts + calls).joined(separator: "\n")
    }

    private static func bundled(_ name: String, _ text: String) -> String {
        var exported: [String] = []
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).map { line -> String in
            // import { a, b } from "./module.js";
            if line.hasPrefix("import {"), let names = line.firstRange(of: "} from"),
                let file = line.split(separator: "\"").dropFirst().first
            {
                let module = file.split(separator: "/").last?.prefix { $0 != "." } ?? ""
                return "const \(line[..<names.lowerBound].dropFirst("import ".count))} = module_\(module);"
            }
            guard line.hasPrefix("export ") else { return String(line) }
            let declaration = line.dropFirst("export ".count)
            let words = declaration.split { !($0.isLetter || $0.isNumber || $0 == "_" || $0 == "$") }
            exported += words.dropFirst().prefix(1).map(String.init)
            return String(declaration)
        }
        return
            "const module_\(name) = (() => {\n\(lines.joined(separator: "\n"))\nreturn { \(exported.joined(separator: ", ")) };\n})();"
    }

    /// The input of the script: the sign-outs, and the display name of each process.
    private struct Content: Encodable {
        let rounds: [CheckResult.Round]
        let names: [String: String]
    }

    /// - Returns: JSON without characters that could end the enclosing element.
    static func content(of result: CheckResult) -> String {
        let names = result.names
        let lanes = Set(result.rounds.flatMap { round in round.apps.map(\.identifier) + round.events.map(\.lane) })
        let content = Content(
            rounds: result.rounds,
            names: Dictionary(uniqueKeysWithValues: lanes.map { ($0, names[$0].printable) })
        )
        // Encoding numbers and strings cannot fail. Without its drawings, the page still has its tables.
        let bytes = (try? JSONEncoder().encode(content)) ?? Data()
        // Not characters: after another scalar, one of these would be part of a different character.
        let escapes: [Unicode.Scalar: String] = ["<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u{7F}": "\\u007f"]
        return String(decoding: bytes, as: UTF8.self).unicodeScalars.map { escapes[$0] ?? String($0) }.joined()
    }

    /// A random nonce: browsers run only scripts that carry it.
    static func nonce() -> String {
        (0..<4).map { _ in String(UInt64.random(in: .min ... .max), radix: 36) }.joined()
    }
}
