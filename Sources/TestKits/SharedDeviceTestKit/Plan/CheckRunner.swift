import DBusTransport
import Foundation
import NotifyCenterTestKit
import SharedDevice
import Synchronization

/// Carries out a plan.
public struct CheckRunner: Sendable {
    private let plan: CheckPlan
    private let programs: String?
    private let directory: String?
    private let progress: @Sendable (String) -> Void

    /// - Parameters:
    ///   - plan: the plan.
    ///   - programs: the parameter of ``TestDevice``.
    ///   - directory: the parameter of ``TestDevice``.
    ///   - progress: called before each step, on the task that runs the plan.
    public init(
        _ plan: CheckPlan,
        programs: String? = nil,
        directory: String? = nil,
        progress: @escaping @Sendable (String) -> Void = { _ in }
    ) {
        self.plan = plan
        self.programs = programs
        self.directory = directory
        self.progress = progress
    }

    /// Starts the device, does the steps, and returns the result. On return all processes have ended.
    ///
    /// - Throws: ``TestDeviceError/Code/programMissing`` if an app's program is missing, ``TestDeviceError/Code/deviceFailed`` if bus or
    ///   broker do not start. Later failures are in the result, a cancellation too.
    public func run() async throws(TestDeviceError) -> CheckResult {
        let start = (Date(), ContinuousClock.now)
        progress("starting bus, broker and \(plan.apps.count == 1 ? "one app" : "\(plan.apps.count) apps")")
        let device = try await TestDevice(
            apps: plan.apps,
            users: plan.users,
            cleanup: plan.cleanup,
            programs: programs,
            directory: directory
        )
        let course = CheckCourse(device, progress: progress)
        var failure: CheckResult.Failure?
        for (index, step) in plan.steps.enumerated() {
            guard failure == nil else {
                course.skip(step, at: index)
                continue
            }
            do {
                try Task.checkCancellation()
                try await course.take(step, at: index)
            } catch {
                failure = CheckResult.Failure(step: index, message: "\(error)")
                progress("step \(index) failed: \(error)")
            }
        }
        let isBad = failure != nil || course.verdicts.contains { $0.outcome != .holds }
        return CheckResult(
            title: plan.title,
            startedAt: start.0,
            milliseconds: Text.number(.now - start.1),
            verdicts: course.verdicts,
            rounds: course.rounds,
            failure: failure,
            output: isBad ? course.output : [:]
        )
    }
}

/// A run of a plan on a device.
final class CheckCourse {
    private let device: TestDevice
    private let progress: (String) -> Void
    private(set) var verdicts: [CheckResult.Verdict] = []
    private(set) var rounds: [CheckResult.Round] = []
    /// The number of lines that an app had written when the plan last wrote to it.
    private var marks: [String: Int] = [:]

    init(_ device: TestDevice, progress: @escaping (String) -> Void) {
        self.device = device
        self.progress = progress
    }

    /// The last lines of each process.
    var output: [String: String] {
        var output = ["shared-device-broker": device.brokerText]
        for app in device.apps { output[app.identifier] = (app.lines + [app.errorText]).joined(separator: "\n") }
        return output.mapValues { String($0.suffix(4000)) }
    }

    func take(_ step: CheckStep, at index: Int) async throws {
        defer { noteRound() }
        switch step {
        case .signIn(let user):
            progress("\(user) signs in")
            try await device.signIn(user)
        case .signOut:
            progress("sign-out")
            try await device.beginSignOut(copies: false)
        case .waitUntilRunning(let time):
            progress("waiting until the apps run")
            try await device.waitUntilRunning(within: .milliseconds(time))
        case .send(let app, let line):
            progress("\(app) ← \(Text.printable(line))")
            marks[app] = try device.app(app).lines.count
            try device.app(app).write(line)
        case .waitForLine(let app, let text, let time):
            progress("waiting for a line of \(app) with “\(Text.printable(text))”")
            let mark = marks[app] ?? 0
            try await device.app(app).line(after: mark, within: .milliseconds(time)) { $0.contains(text) }
        case .waitForMarker(let app, let marker, let time):
            progress("waiting until “\(Text.printable(marker))” is in the data of \(app)")
            try await device.app(app).waitForMarker(Marker(marker), within: .milliseconds(time))
        case .pause(let time):
            progress("a pause of \(Text.milliseconds(time))")
            try await Task.sleep(for: .milliseconds(time))
        case .slowCleanup(let app, let time):
            progress("\(app) will be stopped for \(Text.milliseconds(time)) when it is told")
            try device.slowCleanup(of: app, by: .milliseconds(time))
        case .start(let app): try device.app(note("start", app)).start()
        case .stop(let app): try await device.app(note("stop", app)).stop()
        case .resume(let app): try device.app(note("continue", app)).resume()
        case .kill(let app): try await device.app(note("kill", app)).kill()
        case .killBroker:
            progress("kill the broker")
            await device.killBroker()
        case .startBroker:
            progress("start the broker")
            try await device.restartBroker()
        case .restartBus:
            progress("restart the bus")
            try device.restartBus()
        case .spoofBroadcast:
            progress("a broadcast that is not the broker's")
            try await device.spoofBroadcast()
        case .expect(let expectation):
            try await check(expectation, at: index)
        }
    }

    private func note(_ what: String, _ app: String) -> String {
        progress("\(what) \(app)")
        return app
    }

    /// The expectations of a step that was not reached.
    func skip(_ step: CheckStep, at index: Int) {
        guard case .expect(let expectation) = step else { return }
        for app in apps(of: expectation) {
            for text in Expected.all(expectation) {
                add(app.identifier, text, index, .skipped, "an earlier step could not be done")
            }
        }
    }

    // MARK: Expectations

    private func apps(of expectation: CheckExpectation) -> [DeviceApp] {
        guard let names = expectation.apps else { return device.apps }
        return device.apps.filter { names.contains($0.identifier) }
    }

    private func check(_ expectation: CheckExpectation, at index: Int) async throws {
        let apps = apps(of: expectation)
        for app in apps { try checkPresence(expectation.present, in: app, index) }
        if let limit = expectation.heardWithin {
            await wait(for: limit, apps) { $0.heardAfter != nil }
            try judge(apps, Expected.heard(limit), index, limit) { $0.heardAfter }
        }
        if let limit = expectation.cleanedWithin {
            await wait(for: limit, apps) { $0.progress == .finished }
            try judge(apps, Expected.cleaned(limit), index, limit) { $0.progress == .finished ? $0.cleanedAfter : nil }
        }
        for app in apps { try checkAbsence(expectation.absent, in: app, index) }
    }

    /// Waits until the condition holds for all these apps, or their time is certainly over.
    private func wait(
        for limit: Double,
        _ apps: [DeviceApp],
        until condition: @escaping (PropagationReport.App) -> Bool
    ) async {
        let names = apps.map(\.identifier)
        guard let answered = device.state.withLock({ $0.signOut?.answered }) else { return }
        // A report of the ledger reaches the kit late; the times in it count.
        let rest = answered + .milliseconds(limit) + .milliseconds(500) - .now
        await device.wait(for: max(.milliseconds(50), rest)) { report in
            report.hasRound && report.apps.allSatisfy { !names.contains($0.identifier) || condition($0) }
        }
    }

    private func judge(
        _ apps: [DeviceApp],
        _ text: String,
        _ index: Int,
        _ limit: Double,
        _ time: (PropagationReport.App) -> Duration?
    ) throws {
        let report = try device.report()
        for app in report.apps where apps.contains(where: { $0.identifier == app.identifier }) {
            let measured = time(app)
            let holds = measured.map { Text.number($0) <= limit } ?? false
            let detail = measured.map { "after \(Text.milliseconds($0))" } ?? app.summary
            add(app.identifier, text, index, holds ? .holds : .fails, detail)
        }
    }

    private func checkPresence(_ markers: [String], in app: DeviceApp, _ index: Int) throws {
        let found = markers.isEmpty ? [] : try app.findings(of: markers.map { Marker($0) })
        for text in markers {
            let places = found.filter { $0.marker == Marker(text).kind }
            add(
                app.identifier,
                Expected.present(text),
                index,
                places.isEmpty ? .fails : .holds,
                // For a marker that should be absent, the report names the exact place.
                places.isEmpty ? "it is nowhere" : "in \(places.count == 1 ? "one place" : "\(places.count) places")"
            )
        }
    }

    private func checkAbsence(_ markers: [String], in app: DeviceApp, _ index: Int) throws {
        let found = markers.isEmpty ? [] : try app.findings(of: markers.map { Marker($0) })
        for text in markers {
            let places = found.filter { $0.marker == Marker(text).kind }
            add(
                app.identifier,
                Expected.absent(text),
                index,
                places.isEmpty ? .holds : .fails,
                places.isEmpty ? "nothing found" : Self.list(places, 5)
            )
        }
    }

    private static func list(_ places: [ByteSearch.Finding], _ limit: Int) -> String {
        let shown = places.prefix(limit).map { place in
            "\(place.encoding) \(place.offset.map { "at byte \($0)" } ?? "in the name") of \(place.path)"
        }
        let more = places.count > limit ? "; \(places.count) places in all" : ""
        return shown.joined(separator: "; ") + more
    }

    private func add(
        _ app: String,
        _ expectation: String,
        _ step: Int,
        _ outcome: CheckResult.Verdict.Outcome,
        _ detail: String
    ) {
        if outcome == .fails { progress("\(app) FAILS: \(expectation): \(detail)") }
        verdicts.append(
            CheckResult.Verdict(app: app, expectation: expectation, step: step, outcome: outcome, detail: detail)
        )
    }

    private func noteRound() {
        guard let report = try? device.report() else { return }
        let round = CheckResult.Round(report)
        if rounds.last?.session == round.session { rounds.removeLast() }
        rounds.append(round)
    }
}

/// Expectations in words.
private enum Expected {
    static func present(_ marker: String) -> String { "“\(marker)” is in its data" }
    static func absent(_ marker: String) -> String { "nothing of “\(marker)” is left in its data" }
    static func heard(_ limit: Double) -> String { "hears of the sign-out within \(Text.milliseconds(limit))" }
    static func cleaned(_ limit: Double) -> String { "is clean within \(Text.milliseconds(limit))" }

    static func all(_ expectation: CheckExpectation) -> [String] {
        expectation.present.map(present)
            + [expectation.heardWithin.map(heard), expectation.cleanedWithin.map(cleaned)]
            .compactMap(\.self) + expectation.absent.map(absent)
    }
}
