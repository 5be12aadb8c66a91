import Basics
import DBus
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@_spi(Extensions) @testable import SharedDevice

@Suite("An app that follows the account", .timeLimit(.minutes(10)))
struct FollowTests {
    private let log = Log()

    private static func line(_ state: AccountState) -> String {
        switch state {
        case .open(let account): "open \(account.username)"
        case .nobody: "nobody"
        case .hidden(.starting): "hidden: starting"
        case .hidden(.changing): "hidden: changing"
        case .hidden(.cleanupFailed): "hidden: failed"
        case .hidden(.unknown): "hidden: unknown"
        case .hidden(.appFailed): "hidden: app failed"
        case .hidden(.stopped): "hidden: stopped"
        }
    }

    private func coordinator(_ device: DeviceOnPrivateBus) -> CleanupCoordinator {
        var options = CleanupCoordinator.Options()
        options.pause = .zero
        options.firstWait = .milliseconds(10)
        options.longestWait = .milliseconds(20)
        return CleanupCoordinator(stateDirectory: "\(device.directory.path)/apps/app", options: options)
    }

    private func expectLast(_ line: String) async throws {
        try await eventually("\(line) ends \(log.lines)") { log.lines.last == line }
    }

    private func follow(
        _ application: SharedDeviceApplication,
        _ cleanup: CleanupCoordinator,
        _ handler: @escaping @Sendable (AccountState) async throws -> Void = { _ in }
    ) -> Task<Void, Never> {
        Task { [log] in
            await application.follow(cleanup) { state in
                log.add(Self.line(state))
                try await handler(state)
            }
        }
    }

    private func firstChange(_ application: SharedDeviceApplication) async throws -> AccountChange {
        for await change in application.accountChanges { return change }
        throw DeviceOnPrivateBus.Unexpected(description: "no change")
    }

    @Test("a failing cleanup stays pending and is retried before anything is shown")
    func failingCleanup() async throws {
        let device = try await DeviceOnPrivateBus()
        let (application, other) = (device.application(), device.application("other"))
        let isJammed = Locked(true)
        let tries = Locked(0)
        let cleanup = coordinator(device)
        try cleanup.register("notes") { _ in
            tries.withLock { $0 += 1 }
            if isJammed.withLock({ $0 }) { throw DeviceOnPrivateBus.Unexpected(description: "jammed") }
        }
        let task = follow(application, cleanup)
        defer { task.cancel() }
        try await other.signIn("ada")
        try await expectLast("open ada")
        try await other.signOutCurrent()
        try await other.signIn("grace")
        try await eventually("three passes of three tries") { tries.withLock { $0 } >= 9 }
        let begin = try #require(log.lines.firstIndex(of: "open ada")) + 1
        #expect(log.lines[begin...] == ["hidden: changing", "hidden: failed"])
        let record = SessionStore(path: "\(device.directory.path)/apps/app/shared-device-sessions.json")
        #expect(try record.load().mayHoldData.contains { $0.account.username == "ada" })
        isJammed.withLock { $0 = false }
        try await expectLast("open grace")
        #expect(log.lines[begin...] == ["hidden: changing", "hidden: failed", "open grace"])
        #expect(try !record.load().mayHoldData.contains { $0.account.username == "ada" })
    }

    @Test("a user who leaves during the cleanup is not shown")
    func changeDuringCleanup() async throws {
        let device = try await DeviceOnPrivateBus()
        let other = device.application("other")
        try await other.signIn("ada")
        // The app knows of ada, and does not run when grace signs in.
        let known = try await firstChange(device.application())
        #expect(known.current?.username == "ada")
        try await other.signOutCurrent()
        try await other.signIn("grace")
        let gate = AsyncStream.makeStream(of: Void.self)
        let cleanup = coordinator(device)
        try cleanup.register("notes") { [log] cleanup in
            let names = cleanup.accounts.map(\.username).joined(separator: ", ")
            log.add("delete \(names) for \(cleanup.change.current?.username ?? "nobody")")
            for await _ in gate.stream {}
        }
        let task = follow(device.application(), cleanup)
        defer { task.cancel() }
        try await expectLast("delete ada for grace")
        try await other.signOutCurrent()
        gate.continuation.finish()
        try await expectLast("nobody")
        #expect(!log.lines.contains("open grace"))
    }

    @Test("a failed hide prevents the report, and a failed open is retried")
    func failingHandler() async throws {
        let device = try await DeviceOnPrivateBus()
        let (application, other) = (device.application(), device.application("other"))
        let fails = Locked<Set<String>>(["open ada"])
        let cleanup = coordinator(device)
        try cleanup.register("notes") { [log] _ in log.add("delete") }
        let task = follow(application, cleanup) { state in
            let line = Self.line(state)
            if fails.withLock({ $0.contains(line) }) { throw DeviceOnPrivateBus.Unexpected(description: "no \(line)") }
        }
        defer { task.cancel() }
        try await other.signIn("ada")
        try await eventually("\(log.lines)") { log.lines.contains("hidden: app failed") }
        fails.withLock { $0 = ["hidden: changing", "hidden: failed"] }
        try await expectLast("open ada")
        try await other.signOutCurrent()
        try await eventually("\(log.lines)") { log.lines.filter { $0 == "hidden: failed" }.count >= 2 }
        #expect(log.lines.contains("delete") && log.lines.last != "nobody")
        let deletions = log.lines.filter { $0 == "delete" }.count
        fails.withLock { $0 = [] }
        try await expectLast("nobody")
        // Data that the screen's work has stored since is deleted, too.
        #expect(log.lines.filter { $0 == "delete" }.count > deletions)
    }

    @Test("cancelled during a step, it returns after the report and shows no user")
    func cancelledDuringCleanup() async throws {
        let device = try await DeviceOnPrivateBus()
        let (application, other) = (device.application(), device.application("other"))
        let gate = AsyncStream.makeStream(of: Void.self)
        let cleanup = coordinator(device)
        try cleanup.register("notes") { [log] _ in
            log.add("deleting")
            for await _ in gate.stream {}
            log.add("deleted, cancelled: \(Task.isCancelled)")
        }
        try cleanup.register("cache") { [log] _ in log.add("emptied") }
        let task = follow(application, cleanup)
        try await other.signIn("ada")
        try await expectLast("open ada")
        try await other.signOutCurrent()
        try await expectLast("deleting")
        task.cancel()
        gate.continuation.finish()
        await task.value
        #expect(log.lines.suffix(4) == ["deleting", "deleted, cancelled: false", "emptied", "hidden: stopped"])
        let change = try await firstChange(device.application())
        #expect(change.previousAccounts.isEmpty)
    }

    @Test("the handler runs on its caller's actor", .timeLimit(.minutes(5)))
    @MainActor
    func isolation() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let application = device.application()
        let cleanup = coordinator(device)
        var lines: [String] = []
        let task = Task { @MainActor in
            await application.follow(cleanup) { state in
                MainActor.assertIsolated()
                lines.append(Self.line(state))
            }
        }
        try await eventually("the broker is away") { lines == ["hidden: starting", "hidden: unknown"] }
        task.cancel()
        await task.value
        #expect(lines.last == "hidden: stopped")
    }
}
