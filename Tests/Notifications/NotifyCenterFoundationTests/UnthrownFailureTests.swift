import Foundation
import NotifyCenter
import NotifyCenterFoundation
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import DBus

@Suite("Failures that DistributedNotificationCenter cannot throw")
struct UnthrownFailureTests {
    /// Returns the failures of this thread, because other tests cause failures at the same time.
    private func failures(of work: () throws -> Void) rethrows -> [String] {
        let failures = Log()
        let thread = pthread_self()
        let observation = UnthrownFailures.observe { failure in
            if pthread_equal(thread, pthread_self()) != 0 { failures.add("\(failure)") }
        }
        try work()
        observation.cancel()
        return failures.all
    }

    // CF-X6, CF-U2
    @Test("a post with invalid values, or without a bus, is reported and sends nothing")
    func refusals() async throws {
        let bus = try PrivateBus()
        let underlying = DistributedNotifyCenter(bus: bus.bus)
        let center = DistributedNotificationCenter(underlying)
        let sequence = center.notifications(named: nil)
        let name = Notification.Name("n")
        let failures = failures {
            center.post(name: name, object: nil, userInfo: ["a": NSNull()])
            center.post(Notification(name: name, object: NSNumber(value: 3)))
            center.postNotificationName(name, object: nil, userInfo: [3: 3], deliverImmediately: true)
            center.addObserver(forName: name, object: NSObject(), queue: nil) { _ in }
            _ = center.notifications(named: name, object: 3)
            _ = DistributedNotificationCenter.forType(.init(rawValue: "other"))
        }
        let reasons = [
            "userInfo[\"a\"]: of type NSNull.", "is text, not NSNumber", "a key of type Int.", "is text, not NSObject",
            "is text, not Int", "no center of type other",
        ]
        #expect(failures.count == reasons.count)
        for (failure, reason) in zip(failures, reasons) { #expect(failure.contains(reason)) }
        #expect(underlying.statistics.observers == 1)
        center.post(name: .init("last"), object: nil)
        var iterator = sequence.makeAsyncIterator()
        #expect(await iterator.next()?.name == Notification.Name("last"))
        let lost = DistributedNotificationCenter(bus: .address("unix:path=/nowhere/bus"))
        let lostFailures = self.failures {
            lost.post(name: name, object: nil)
            lost.addObserver(forName: name, object: nil, queue: nil) { _ in }
            _ = lost.notifications(named: name)
        }
        #expect(lostFailures.count == 3)
        #expect(lostFailures.allSatisfy { $0.contains("/nowhere/bus") }, "\(lostFailures)")
    }

    // CF-A11; Outages, the columns of a bus that is away and of one that is stopped.
    @Test(
        "what is added without a responding bus is reported, kept and called later",
        arguments: PrivateBus.Daemon.chosen == .daemon ? [false, true] : [false]
    )
    func addedDuringAnOutage(isStopped: Bool) async throws {
        let bus = try PrivateBus()
        let center: DistributedNotificationCenter
        if isStopped {
            let connection = try DBusConnection.open(bus.bus)
            // Instead of 25 seconds.
            connection.core.state.withLock { $0.ruleTimeout = .milliseconds(100) }
            center = DistributedNotificationCenter(DistributedNotifyCenter(connection: connection))
            bus.suspend()
        } else {
            bus.stop()
            center = DistributedNotificationCenter(bus: bus.bus)
        }
        defer { if isStopped { bus.resume() } }
        let heard = Log()
        async let adding = onThread {
            failures {
                center.addObserver(forName: .init("n"), object: nil, queue: OperationQueue()) { notification in
                    heard.add(notification.name.rawValue)
                }
            }
        }
        async let listening = onThread {
            var sequence: DistributedNotificationCenter.Notifications?
            let told = failures { sequence = center.notifications(named: .init("other")) }
            return (told, sequence)
        }
        let (added, (told, sequence)) = (await adding, await listening)
        #expect(added.count == 1 && told.count == 1)
        #expect((added + told).allSatisfy { $0.contains("is kept") }, "\(added + told)")
        let loop = Task { [sequence] in
            for await one in try #require(sequence) { heard.add(one.name.rawValue) }
        }
        defer { loop.cancel() }
        if isStopped { bus.resume() } else { try bus.start() }
        let poster = DistributedNotifyCenter(bus: bus.bus)
        try await eventually("both hear") {
            for name in ["n", "other"] { try? poster.post(NotificationName(name)) }
            return Set(heard.all) == ["n", "other"]
        }
    }
}
