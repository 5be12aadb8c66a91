import DemoStage
import ExampleSupport
import Foundation
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import TestProviders

final class IdentityScenario {
    private let stage: IdentityStage
    private let showsBrowser: Bool
    private let progress: (String) -> Void
    /// The application object with which the demonstration itself calls the broker.
    private let application: SharedDeviceApplication
    private(set) var proof = Proof()
    private(set) var receipts: [Receipts] = []
    private(set) var figures = Figures()

    init(_ stage: IdentityStage, showsBrowser: Bool, progress: @escaping (String) -> Void) {
        self.stage = stage
        self.showsBrowser = showsBrowser
        self.progress = progress
        application = SharedDeviceApplication(
            identifier: ExampleApp.identifier("demo-identity"),
            bus: stage.bus.bus,
            stateDirectory: "\(stage.directory)/demo"
        )
    }

    func play() async throws {
        let ada = try await signIn("ada", through: stage.shop)
        try await work(ada.username, times: 20)
        let markers = try await markers(of: ada.username, in: stage.shop)
        proof.addPresence(
            "Ada's data is in every app, found by a search of every byte",
            of: markers,
            in: try search(markers)
        )
        try await endedByTheAdministrator(ada.username, markers)
        try await nextPerson(after: ada.username, through: stage.flight)
        try await signOutWithout("stands still", command: "halt", by: stage.field, of: "grace") {
            $0.signOutWhileProviderHangs = $1
        }
        _ = try await stage.provider.run("resume")
        _ = try await signIn("ada", through: stage.field)
        try await signOutWithout("is killed", command: "kill", by: stage.shop, of: "ada") {
            $0.signOutWhileProviderIsGone = $1
        }
        for app in stage.apps { try app.quit() }
        try searchForSecrets()
    }

    // MARK: Steps

    /// Signs a person in at the provider's page, in the browser that an app's prompt opens. Returns the device's name
    /// for the person, and the state of the page, if the demonstration saw it.
    private func signIn(_ name: String, through app: AppProcess) async throws -> (username: String, visitor: Visitor?) {
        progress("\(name.capitalized) signs in at the provider's page, through \(app.name)")
        let marks = try Marks(stage.apps)
        try app.tell("signin")
        var visitor: Visitor?
        if showsBrowser {
            progress("in the window that opens: sign in as \(name), with \(IdentityStage.password)")
        } else {
            visitor = try await Visitor(name, in: stage.signIns)
        }
        let mark = try marks[app]
        let outcome = try await app.wait(
            for: "\(name)'s sign-in",
            after: mark,
            within: .seconds(showsBrowser ? 600 : 60)
        ) { $0.event == .signedIn || $0.event == .failed }
        guard outcome.event == .signedIn, let username = outcome.account, username.hasPrefix("\(name)@") else {
            throw DemoFailure("\(name) is not signed in: \(outcome.detail ?? outcome.account ?? "")")
        }
        if let visitor { figures.signIns.append(Self.milliseconds(visitor.submitted, outcome.nanoseconds)) }
        for app in stage.apps {
            try await app.wait(for: "\(username)'s screen", after: try marks[app]) {
                $0.event == .screen && $0.account == username && $0.detail == "open"
            }
        }
        proof.add(
            "the browser's profile is deleted when \(name.capitalized) is signed in",
            holds: try profiles().isEmpty
        )
        return (username, visitor)
    }

    /// Lets each app work for the first time in this session: it requests a token silently and shows it to the service.
    private func work(_ username: String, times: Int) async throws {
        progress("all three apps work for \(username); the service checks each token by the provider's keys")
        let marks = try Marks(stage.apps)
        for app in stage.apps { for _ in 0..<times { try app.tell("work") } }
        var answers: Set<String> = []
        for app in stage.apps {
            let mark = try marks[app]
            try await eventually("“\(app.name): \(times) times at work”", within: .seconds(60)) {
                _ = try app.mark()
                let events = app.events[mark...]
                if let failure = events.first(where: { $0.event == .failed }) {
                    throw DemoFailure("\(app.name): \(failure.detail ?? "")")
                }
                return events.count { $0.event == .worked } >= times
            }
            let worked = app.events[mark...].filter { $0.event == .worked }
            answers.formUnion(worked.map { $0.orders ?? "no token shown" })
            let times = worked.compactMap(\.tokenMilliseconds)
            figures.firstTokens += times.prefix(1)
            figures.laterTokens += times.dropFirst()
        }
        proof.add(
            "the service took the tokens of all three apps, each by the provider's keys, and took them for one person's",
            holds: answers.count == 1 && answers.allSatisfy { $0.contains("orders for") },
            evidence: answers.sorted()
        )
    }

    private func endedByTheAdministrator(_ username: String, _ markers: [Marker]) async throws {
        progress("the provider's administrator ends Ada's sign-in, far from the device")
        let marks = try Marks(stage.apps)
        let begin = MonotonicClock.nanoseconds
        let ended = try await stage.provider.run("end ada")
        proof.add("the provider's administrator ended Ada's sign-in", holds: Int(ended).map { $0 > 0 } == true)
        figures.remoteSignOut = try await waitUntilClean(of: username, since: begin, after: marks)
        try await addReceipts(
            "Ada is signed out by the provider's administrator",
            "no app and no person at the device did anything"
        )
        proof.addAbsence("not a byte of Ada is left in any app's data", in: try search(markers))
    }

    private func nextPerson(after last: String, through app: AppProcess) async throws {
        let grace = try await signIn("grace", through: app)
        if let question = grace.visitor?.question {
            proof.add(
                "the page asked the next person who she is: it had no cookie, no name was filled in, and none was shown",
                holds: question.cookies == 0 && question.filled.isEmpty
                    && !question.asked.contains { $0.lowercased().contains("ada") },
                evidence: [question.asked.joined(separator: " ")]
            )
        }
        proof.add("Grace is signed in, as herself", holds: grace.username != last)
        try await work(grace.username, times: 1)
    }

    /// Signs out while the provider does not respond.
    private func signOutWithout(
        _ state: String,
        command: String,
        by app: AppProcess,
        of name: String,
        _ note: (inout Figures, Figures.SignOut) -> Void
    ) async throws {
        progress("the provider \(state), and \(name.capitalized) signs out through \(app.name)")
        _ = try await stage.provider.run(command)
        let marks = try Marks(stage.apps)
        let mark = try marks[app]
        try app.tell("signout")
        let asked = try await app.wait(for: "the sign-out", after: mark) { $0.event == .signingOut }
        let answered = try await app.wait(for: "the end of the session", after: mark) {
            $0.event == .signedOut || $0.event == .failed
        }
        guard answered.event == .signedOut, let username = asked.account else {
            throw DemoFailure("the sign-out failed: \(answered.detail ?? "")")
        }
        let clean = try await waitUntilClean(of: username, since: asked.nanoseconds, after: marks)
        let session = Self.milliseconds(asked.nanoseconds, answered.nanoseconds)
        note(&figures, Figures.SignOut(session: session, receipts: clean))
        try await addReceipts(
            "\(name.capitalized) signs out while the provider \(state)",
            "the sign-out does not wait for it"
        )
    }

    // MARK: Checks

    /// Waits for every app to have cleaned up. Returns milliseconds until the last app had.
    private func waitUntilClean(of username: String, since begin: UInt64, after marks: Marks) async throws -> Double {
        var last = begin
        for app in stage.apps {
            let cleaned = try await app.waitUntilClean(of: username, after: try marks[app])
            last = max(last, cleaned.nanoseconds)
        }
        return Self.milliseconds(begin, last)
    }

    private func addReceipts(_ title: String, _ circumstances: String) async throws {
        let round = try await Receipts(title, circumstances, from: application)
        receipts.append(round)
        proof.add(round, ofApps: stage.apps.count)
    }

    /// The markers of a person's data: the user name, and the text in each piece of data, which the till shows.
    private func markers(of username: String, in shop: AppProcess) async throws -> [Marker] {
        let mark = #/private-data-of-[0-9a-f-]{36}/#
        var text: String?
        try await eventually("Ada's marker on the till's screen", within: .seconds(60)) {
            text = shop.process.lines.lazy.compactMap { $0.firstMatch(of: mark).map { String($0.output) } }.last
            return text != nil
        }
        return [Marker(kind: "user name", text: username), Marker(kind: "data marker", text: text ?? "")]
    }

    private func search(_ markers: [Marker]) throws -> Proof.Results {
        let search = ByteSearch(markers)
        return try stage.apps.map { ($0.name, try search.run(under: $0.dataDirectory)) }
    }

    /// Searches for secrets that only provider, prompt and broker may know. Only the file that the administrator wrote
    /// may contain one.
    private func searchForSecrets() throws {
        let secrets = [
            Marker(kind: "password", text: IdentityStage.password),
            Marker(kind: "client secret", text: IdentityStage.secret),
            // Every signed token begins with this text.
            Marker(kind: "token", text: "eyJ0eXAi"),
        ]
        let search = ByteSearch(secrets)
        let places = ["data", "events", "run", "broker", "demo"].filter {
            FileManager.default.fileExists(atPath: "\(stage.directory)/\($0)")
        }
        proof.addAbsence(
            "no password, secret or token is in any file of apps, broker or browsers",
            in: try places.map { ($0, try search.run(under: "\(stage.directory)/\($0)")) }
        )
        let output = Array(stage.transcript.utf8)
        proof.add("nor in what any process wrote", holds: search.findings(in: output, path: "output").isEmpty)
    }

    private func profiles() throws -> [String] {
        FileManager.default.fileExists(atPath: stage.signIns)
            ? try FileManager.default.contentsOfDirectory(atPath: stage.signIns) : []
    }

    private static func milliseconds(_ begin: UInt64, _ end: UInt64) -> Double {
        Double(Int64(end) - Int64(begin)) / 1_000_000
    }
}
