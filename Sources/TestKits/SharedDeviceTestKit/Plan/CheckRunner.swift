import Basics
import DBus
import FoundationEssentials
import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization

/// Runs a plan.
public struct CheckRunner: Sendable {
    private let plan: CheckPlan
    private let programs: String?
    private let directory: String?
    private let progress: @Sendable (String) -> Void

    /// Creates a runner. ``run()`` starts the device.
    ///
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

    /// Starts the device, performs the steps, and returns the result. On return all processes have ended.
    ///
    /// - Throws: ``TestDeviceError/Code/programMissing`` if an app's program is missing,
    ///   ``TestDeviceError/Code/deviceFailed`` if bus or broker do not start, ``TestDeviceError/Code/filesFailed`` if
    ///   the apps' directories or the configuration cannot be written. Later failures, including a cancellation, are in
    ///   the result.
    public func run() async throws(TestDeviceError) -> CheckResult {
        let start = (Date(), ContinuousClock.now)
        let leftOut = await plan.appsLeftOut()
        let apps = plan.apps.filter { app in !leftOut.contains { $0.app == app.identifier } }
        progress("starting bus, broker and \(Text.count(apps.count, "app"))")
        let device = try await TestDevice(
            apps: apps,
            users: plan.users,
            groups: plan.groups,
            allowedUsers: plan.allowedUsers,
            cleanup: plan.cleanup,
            programs: programs,
            directory: directory
        )
        let course = CheckCourse(device)
        let names = AppNames(plan.apps.map(\.identifier), reserved: DeviceEvent.lanes)
        let texts = plan.steps.map { $0.text(names) }
        var failure: CheckResult.Failure?
        for (number, step) in zip(1..., plan.steps) where !leftOut.contains(where: { $0.steps.contains(number) }) {
            guard failure == nil else {
                course.skip(step, at: number)
                continue
            }
            do {
                try Task.checkCancellation()
                progress("step \(number) of \(texts.count): \(texts[number - 1])")
                try await course.take(step, at: number)
            } catch {
                failure = CheckResult.Failure(step: number, message: "\(error)")
            }
        }
        let isBad = failure != nil || course.verdicts.contains { $0.outcome != .holds }
        return CheckResult(
            title: plan.title,
            startedAt: start.0,
            milliseconds: Text.number(.now - start.1),
            steps: texts,
            verdicts: course.verdicts,
            rounds: course.rounds,
            failure: failure,
            leftOut: leftOut,
            output: isBad ? course.output : [:]
        )
    }
}

final class CheckCourse {
    private let device: TestDevice
    private(set) var verdicts: [CheckResult.Verdict] = []
    private(set) var rounds: [CheckResult.Round] = []
    /// The number of lines of an app when the plan last wrote to it.
    private var marks: [String: Int] = [:]

    init(_ device: TestDevice) { self.device = device }

    var output: [String: String] {
        var output = ["shared-device-broker": device.brokerText]
        for app in device.apps { output[app.identifier] = (app.lines + [app.errorText]).joined(separator: "\n") }
        return output.mapValues { String($0.suffix(4000)) }
    }

    func take(_ step: CheckStep, at number: Int) async throws {
        defer { noteRound() }
        switch step {
        case .signIn(let user): try await device.signIn(user)
        case .refuseSignIn(let user): try await device.refuseSignIn(user)
        case .signOut: try await device.beginSignOut(copies: false)
        case .waitUntilRunning(let time): try await device.waitUntilRunning(within: .milliseconds(time))
        case .send(let app, let line):
            marks[app] = try device.app(app).lines.count
            try device.app(app).write(line)
        case .waitForLine(let app, let text, let time):
            let mark = marks[app] ?? 0
            try await device.app(app).line(after: mark, within: .milliseconds(time)) { $0.contains(text) }
        case .waitForMarker(let app, let marker, let time):
            try await device.app(app).waitForMarker(Marker(marker), within: .milliseconds(time))
        case .pause(let time): try await Task.sleep(for: .milliseconds(time))
        case .slowCleanup(let app, let time): try device.slowCleanup(of: app, by: .milliseconds(time))
        case .start(let app): try device.app(app).start()
        case .stop(let app): try await device.app(app).stop()
        case .resume(let app): try device.app(app).resume()
        case .kill(let app): try await device.app(app).kill()
        case .killBroker: await device.killBroker()
        case .startBroker: try await device.restartBroker()
        case .restartBus: try device.restartBus()
        case .spoofBroadcast: try await device.spoofBroadcast()
        case .warn: try await device.warn()
        case .lock: try await device.lock()
        case .unlock(let user): try await device.unlock(user)
        case .expect(let expectation): try await check(expectation, at: number)
        }
    }

    func skip(_ step: CheckStep, at number: Int) {
        guard case .expect(let expectation) = step else { return }
        for app in apps(of: expectation) {
            for text in expectation.parts {
                add(app.identifier, text, number, .skipped, "an earlier step could not be done")
            }
        }
    }

    // MARK: Expectations

    private func apps(of expectation: CheckExpectation) -> [DeviceApp] {
        guard let names = expectation.apps else { return device.apps }
        return device.apps.filter { names.contains($0.identifier) }
    }

    private func check(_ expectation: CheckExpectation, at number: Int) async throws {
        let apps = apps(of: expectation)
        for app in apps { try check(expectation.present, arePresent: true, in: app, number) }
        if let limit = expectation.heardWithin {
            await wait(for: limit, apps) { $0.heardAfter != nil }
            try judge(apps, Expected.heard(limit), number, limit) { $0.heardAfter }
        }
        if let limit = expectation.cleanedWithin {
            await wait(for: limit, apps) { $0.progress == .finished }
            try judge(apps, Expected.cleaned(limit), number, limit) { $0.progress == .finished ? $0.cleanedAfter : nil }
        }
        for app in apps { try check(expectation.absent, arePresent: false, in: app, number) }
    }

    /// Waits until the condition holds for all these apps, or their time is certainly over.
    private func wait(
        for limit: Double,
        _ apps: [DeviceApp],
        until condition: @escaping (PropagationReport.App) -> Bool
    ) async {
        let names = apps.map(\.identifier)
        guard let answered = device.state.withLock({ $0.signOut?.answered }) else { return }
        // The ledger's reports reach the kit with a delay, but the times in them count.
        let rest = answered + .milliseconds(limit) + .milliseconds(500) - .now
        await device.wait(for: max(.milliseconds(50), rest)) { report in
            report.hasRound && report.apps.allSatisfy { !names.contains($0.identifier) || condition($0) }
        }
    }

    private func judge(
        _ apps: [DeviceApp],
        _ text: String,
        _ number: Int,
        _ limit: Double,
        _ time: (PropagationReport.App) -> Duration?
    ) throws {
        let report = try device.report()
        for app in report.apps where apps.contains(where: { $0.identifier == app.identifier }) {
            let measured = time(app)
            let holds = measured.map { Text.number($0) <= limit } ?? false
            let detail = measured.map { "after \(Text.milliseconds($0))" } ?? app.summary
            add(app.identifier, text, number, holds ? .holds : .fails, detail)
        }
    }

    private func check(_ markers: [String], arePresent: Bool, in app: DeviceApp, _ number: Int) throws {
        let found = markers.isEmpty ? [] : try app.findings(of: markers.map { Marker($0) })
        for text in markers {
            let places = found.filter { $0.marker == Marker(text).kind }
            let expected = arePresent ? Expected.present(text) : Expected.absent(text)
            let detail =
                if places.isEmpty {
                    arePresent ? "it is nowhere" : "nothing found"
                } else {
                    // The exact places matter for a marker that should be absent.
                    arePresent ? "in \(Text.count(places.count, "place"))" : Self.list(places, 5)
                }
            add(app.identifier, expected, number, places.isEmpty == arePresent ? .fails : .holds, detail)
        }
    }

    private static func list(_ places: [ByteSearch.Finding], _ limit: Int) -> String {
        let shown = places.prefix(limit).map { "\($0.encoding) \($0.place)" }
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
        verdicts.append(.init(app: app, expectation: expectation, step: step, outcome: outcome, detail: detail))
    }

    private func noteRound() {
        guard let report = try? device.report() else { return }
        let round = CheckResult.Round(report)
        if rounds.last?.session == round.session { rounds.removeLast() }
        rounds.append(round)
    }
}
