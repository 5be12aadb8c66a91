import DemoStage
import ExampleSupport
import Foundation
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit

final class Scenario {
    private let stage: Stage
    private let progress: (String) -> Void
    private let notes = Notes()
    private(set) var proof = Proof()
    private(set) var timelines: [Timeline] = []
    private(set) var receipts: [Receipts] = []
    /// The application object with which the demonstration itself calls the broker.
    private let application: SharedDeviceApplication

    init(_ stage: Stage, progress: @escaping (String) -> Void) {
        self.stage = stage
        application = SharedDeviceApplication(
            identifier: ExampleApp.identifier("demo"),
            bus: stage.bus.bus,
            stateDirectory: "\(stage.directory)/demo"
        )
        self.progress = progress
    }

    func play() async throws {
        progress("two users, by the administrator's command")
        let ada = try await stage.addUser("ada@contoso.example", displayName: "Ada Lovelace")
        let grace = try await stage.addUser("grace@contoso.example", displayName: "Grace Hopper")
        try await notes.listen(on: stage.bus.bus)
        try await checkDevice()
        try await partOne(ada)
        try await partTwo(ada, grace)
        try await lastPart(ada, grace)
    }

    private func checkDevice() async throws {
        progress("asking the broker for the device's mode")
        let device = await application.getDeviceInformation()
        proof.add(
            "the device is in shared mode, managed by \(Stage.organization)",
            holds: device.deviceMode == .shared && device.organization == Stage.organization
        )
    }

    // MARK: Part one: every app runs

    private func partOne(_ ada: Person) async throws {
        let start = MonotonicClock.nanoseconds
        let listeners = stage.browser == nil ? "all three apps" : "all three apps and Chromium"
        progress("Ada signs in through point-of-sale, and works in \(listeners)")
        try stage.browser?.prepare(for: ada)
        try await signIn(ada, through: stage.shop)
        try await work(ada)
        try await stage.browser?.waitUntilStored(ada.markers)
        let before = try await stage.frozen { try search(ada.markers) + searchBrowser(ada.markers) }
        proof.addPresence(
            "before the sign-out, the search finds Ada's user name, display name, marker and identifier in every app's data",
            of: ada.markers,
            in: before
        )
        let encodings = Set(before.flatMap { $0.result.findings.map(\.encoding) })
        proof.add("it finds them in UTF-8 and in UTF-16", holds: encodings.count > 1)

        progress("Ada signs out through flight-briefing")
        let marks = try Marks(stage.apps)
        try stage.flight.tell("signout")
        for app in stage.apps { try await waitUntilClean(app, of: ada, after: marks) }
        let amount = stage.apps.count + (stage.browser == nil ? 0 : 1)
        try await addReceipts("Ada's first sign-out", "\(listeners) work", amount: amount)
        try addTimeline("Ada signs out in flight-briefing while \(listeners) work", from: start)
        for app in stage.apps {
            let events = app.events[try marks[app]...]
            proof.add(
                "\(app.name) stopped its work before it deleted Ada's data, and showed nothing of hers afterwards",
                holds: Self.isOrderly(Array(events), for: ada)
            )
        }
        proof.addAbsence(
            "after the sign-out, not a byte of Ada is left in any app's data",
            in: try await stage.frozen { try search(ada.markers) + searchBrowser(ada.markers) },
            listsFiles: true
        )
        try stage.browser?.quit()
    }

    // MARK: Part two: one app was killed, one is stopped

    private func partTwo(_ ada: Person, _ grace: Person) async throws {
        progress("Ada signs in again, through field-service, and works")
        try await signIn(ada, through: stage.field)
        try await work(ada)
        let start = MonotonicClock.nanoseconds
        let marks = try Marks(stage.apps)

        progress("point-of-sale is killed, field-service is stopped; Ada signs out")
        notes.add("demo", "kill", "kills point-of-sale (SIGKILL)")
        stage.shop.kill()
        notes.add("demo", "stop", "stops field-service (SIGSTOP)")
        try await stage.field.suspend()
        try stage.flight.tell("signout")
        try await waitUntilClean(stage.flight, of: ada, after: marks)
        try await cleanedByTheBus(stage.shop, of: ada, after: marks)
        try await heldBack(grace, by: stage.field, until: ada, after: marks)
        let circumstances = "point-of-sale is dead and field-service is stopped; Grace had to wait"
        try await addReceipts("Ada's second sign-out", circumstances, amount: stage.apps.count)

        progress("Grace signs in; point-of-sale is started again")
        try await signIn(grace, through: stage.flight, visibleIn: [stage.flight, stage.field])
        notes.add("demo", "restart", "starts point-of-sale again")
        let mark = try stage.shop.mark()
        try stage.shop.restart()
        try await stage.shop.wait(for: "Grace's screen", after: mark) {
            $0.event == .screen && $0.account == grace.username
        }
        for app in [stage.shop, stage.field] {
            let events = Array(app.events[try marks[app]...])
            proof.add(
                "\(app.name) cleaned up before it showed any user's data",
                holds: Self.isOrderly(events, for: ada)
            )
        }
        // The event is in a file. The screen's text arrives through a pipe, possibly later.
        _ = try await stage.shop.process.line { $0.contains("signed in: ") && $0.contains(grace.username) }
        let shown = stage.shop.process.lines.joined(separator: "\n")
        proof.add(
            "the restarted point-of-sale never wrote a word of Ada to its screen",
            holds: !shown.isEmpty && ByteSearch(ada.markers).findings(in: Array(shown.utf8), path: "screen").isEmpty
        )
        try await work(grace)
        try addTimeline("Ada signs out while point-of-sale is dead and field-service is stopped", from: start)
    }

    /// Waits for an app that owes a cleanup and is not running: the broker asks the bus to start it.
    private func cleanedByTheBus(_ app: AppProcess, of person: Person, after marks: Marks) async throws {
        progress("the bus starts \(app.name), which cleans up and ends")
        let mark = try marks[app]
        try await app.waitUntilClean(of: person.username, after: mark, isStarted: false)
        try await app.wait(for: "the end", after: mark, isStarted: false) { $0.event == .ended }
        let hasShown = app.events[mark...].contains { $0.event == .screen && $0.detail == "open" }
        proof.add(
            "\(app.name), which did not run, was started to clean up, and showed no user's data",
            holds: !hasShown
        )
        proof.addAbsence("so that nothing of \(person.name) is left in it", in: try search(person.markers, in: [app]))
    }

    /// Shows the strict policy: while one app has the last person's data, the next person cannot sign in.
    private func heldBack(_ next: Person, by app: AppProcess, until person: Person, after marks: Marks) async throws {
        progress("\(next.name) cannot sign in while \(app.name) is stopped")
        proof.addPresence(
            "while \(app.name) cannot hear of it, \(person.name)'s data is still there: what it cleans up later is real",
            of: person.markers,
            in: try search(person.markers, in: [app])
        )
        let mark = try stage.flight.mark()
        try stage.flight.tell("signin \(next.username)", next.password)
        let refusal = try await stage.flight.wait(for: "the refusal", after: mark) {
            $0.event == .failed || $0.event == .signedIn
        }
        proof.add(
            "no user can sign in while an app still has \(person.name)'s data; the refusal names the app",
            holds: refusal.event == .failed && refusal.detail?.contains("[cleanup_pending]") == true
                && refusal.detail?.contains(app.name) == true,
            evidence: [refusal.detail ?? ""]
        )
        notes.add("demo", "continue", "lets \(app.name) go on (SIGCONT)")
        app.resume()
        try await waitUntilClean(app, of: person, after: marks)
    }

    private func addReceipts(_ title: String, _ circumstances: String, amount: Int) async throws {
        let round = try await Receipts(title, circumstances, from: application)
        receipts.append(round)
        proof.add(round, ofApps: amount)
    }

    // MARK: The proof

    private func lastPart(_ ada: Person, _ grace: Person) async throws {
        progress("searching every byte for Ada")
        proof.addAbsence(
            "at the end, with Grace at work, not a byte of Ada is left in any app's data",
            in: try await stage.frozen { try search(ada.markers) },
            listsFiles: true
        )
        for app in stage.apps { try app.quit() }
        proof.addAbsence("nor when the apps have ended", in: try search(ada.markers))
        proof.addPresence(
            "Grace's data is there, found by the same search",
            of: grace.markers,
            in: try search(grace.markers)
        )
        proof.add(
            "what belongs to the shop and the depot is there still",
            holds: try contains("Hiking boots", in: stage.shop) && contains("Lift 7", in: stage.field)
        )
        let secrets = [Marker(kind: "password", text: ada.password), Marker(kind: "password", text: grace.password)]
        proof.addAbsence("no password is in any file of an app or of the broker", in: try searchAll(secrets))
        try forget(ada)
    }

    /// Checks that the broker knows Ada as a user of the device until the administrator removes her.
    private func forget(_ ada: Person) throws {
        stage.broker.send(SIGTERM)
        let status = stage.broker.waitUntilExit()
        guard status == 0 else { throw DemoFailure("the broker ended with status \(status)") }
        let markers = ada.markers.filter { $0.kind != "data marker" }
        let directory = stage.stateDirectory
        proof.addPresence(
            "the broker has Ada in its list of users",
            of: markers,
            in: [("broker", try ByteSearch(markers).run(under: directory))]
        )
        try stage.removeUser(ada.username)
        proof.addAbsence(
            "when the administrator has removed her, not a byte of her is left there either",
            in: [("broker", try ByteSearch(ada.markers).run(under: directory))]
        )
    }

    private func search(_ markers: [Marker], in apps: [AppProcess]? = nil) throws -> Proof.Results {
        let search = ByteSearch(markers)
        return try (apps ?? stage.apps).map { ($0.name, try search.run(under: $0.dataDirectory)) }
    }

    private func searchBrowser(_ markers: [Marker]) throws -> Proof.Results {
        guard let browser = stage.browser else { return [] }
        return [(Browser.name, try ByteSearch(markers).run(under: browser.dataDirectory))]
    }

    private func searchAll(_ markers: [Marker]) throws -> Proof.Results {
        try search(markers) + [("broker", try ByteSearch(markers).run(under: stage.stateDirectory))]
    }

    private func contains(_ text: String, in app: AppProcess) throws -> Bool {
        let marker = Marker(kind: "text", text: text)
        return try ByteSearch([marker]).run(under: app.dataDirectory).contains(marker)
    }

    /// Whether an app did the following since the sign-out: it stopped its work, deleted the data, then reported that,
    /// and showed no data until then.
    static func isOrderly(_ events: [Event], for person: Person) -> Bool {
        let isOfPerson: (Event) -> Bool = { $0.account == person.username }
        guard
            let changed = events.firstIndex(where: {
                $0.event == .changed && $0.previous?.contains(person.username) == true
            }),
            let deleted = events.firstIndex(where: { $0.event == .dataDeleted && isOfPerson($0) }),
            let cleaned = events.firstIndex(where: { $0.event == .cleaned })
        else { return false }
        let hasStopped = events.firstIndex { $0.event == .workStopped }.map { $0 < deleted } ?? true
        // A process that ran at the sign-out shows the old screen until it hears of the change; a process that started
        // later has shown nothing.
        let start = events.firstIndex { $0.event == .started } ?? changed
        let isHidden = !events[start..<cleaned].contains { $0.event == .screen && $0.detail == "open" }
        let isGone = !events[changed...].contains { $0.event == .screen && isOfPerson($0) }
        return changed < deleted && deleted < cleaned && hasStopped && isHidden && isGone
    }

    // MARK: Steps

    private func signIn(_ person: Person, through app: AppProcess, visibleIn apps: [AppProcess]? = nil) async throws {
        let marks = try Marks(stage.apps)
        try app.tell("signin \(person.username)", person.password)
        for app in apps ?? stage.apps {
            try await app.wait(for: "\(person.name)'s screen", after: try marks[app]) {
                $0.event == .screen && $0.account == person.username
            }
        }
    }

    /// Does three units of work in each app, and waits until the longer work has written data.
    private func work(_ person: Person) async throws {
        let marks = try Marks(stage.apps)
        for app in stage.apps { try app.tell("work", "work", "work") }
        for app in stage.apps {
            let mark = try marks[app]
            try await app.wait(for: "a screen with \(person.name)'s three items", after: mark) {
                $0.event == .screen && $0.account == person.username && $0.items == 3
            }
        }
        try await eventually("the flights' chart is being drawn", within: .seconds(60)) {
            try FileManager.default.subpathsOfDirectory(atPath: stage.flight.dataDirectory)
                .contains { $0.hasSuffix("chart.bin\(Files.partialSuffix)") }
        }
        try await eventually("a photo is being developed", within: .seconds(60)) {
            try Files.names(in: "\(stage.field.dataDirectory)/photos").contains {
                $0.hasSuffix(".png\(Files.partialSuffix)")
            }
        }
        try await eventually("the open order is in the write-ahead log", within: .seconds(60)) {
            try Files.names(in: stage.shop.dataDirectory).contains("shop.sqlite-wal")
        }
    }

    private func waitUntilClean(_ app: AppProcess, of person: Person, after marks: Marks) async throws {
        let mark = try marks[app]
        try await app.waitUntilClean(of: person.username, after: mark)
        try await app.wait(for: "the screen of nobody", after: mark) {
            $0.event == .screen && $0.account == nil && $0.detail == "nobody"
        }
    }

    private func addTimeline(_ title: String, from start: UInt64) throws {
        let end = MonotonicClock.nanoseconds
        for app in stage.apps { _ = try app.mark() }
        let events = stage.apps.flatMap(\.events).filter { (start..<end).contains($0.nanoseconds) }
        guard let signOut = events.first(where: { $0.event == .signingOut }) else {
            throw DemoFailure("no user signed out")
        }
        let rows = events.map(Timeline.Row.init) + notes.rows(from: start, to: end)
        timelines.append(Timeline(title: title, origin: signOut.nanoseconds, rows: rows))
    }
}
