import Basics
import CLinux
package import DBus
import FoundationEssentials
@_spi(Extensions) package import SharedDevice

/// Follows what the broker wants to be on the screen, and brings it what the person wants.
package struct BrokerScreen: Sendable {
    /// How long a request for what to show waits. While the session is locked, each request confirms the lock.
    private static let wait = Duration.seconds(30)
    private static let lockedWait = Duration.seconds(3)
    /// How long a change of the screen may take before the broker hears of it.
    private static let settleTime = Duration.milliseconds(250)
    /// How long a sign-in may wait for the cleanup of the session before.
    private static let cleanupWait = Duration.seconds(45)

    private let broker: BrokerAdministration
    private let log: @Sendable (String) -> Void

    /// - Throws: ``SharedDeviceError`` if there is no such bus.
    package init(bus: Bus, log: @escaping @Sendable (String) -> Void) throws(SharedDeviceError) {
        broker = try BrokerAdministration(bus: bus)
        self.log = log
    }

    /// Follows the broker until the task is cancelled.
    ///
    /// - Throws: ``SharedDeviceError`` if the broker refuses this program, because another one shows the screen.
    package func follow(_ screen: CompositorScreen) async throws {
        var backoff = Backoff(first: .milliseconds(250), longest: .seconds(2))
        var problem: String?
        var revision: UInt64?
        while true {
            try Task.checkCancellation()
            let shows = screen.shown
            let begin = ContinuousClock.now
            do throws(SharedDeviceError) {
                let wait = shows == .lock ? Self.lockedWait : Self.wait
                let next = try await broker.screen(shows: shows, revision: revision, wait: wait)
                // Not earlier: a broker of the same user, on a session bus, can identify the calling program only while
                // other processes may inspect it.
                CLinux_keepMemoryPrivate()
                if problem != nil { log("the broker responds again") }
                problem = nil
                backoff.reset()
                let isSame = next.revision == revision
                revision = next.revision
                screen.change { $0.take(next, time: Date(), now: .now) }
                await screen.settle(within: Self.settleTime)
                // Limits the rate of requests to a broker that responds at once.
                if isSame, screen.shown == shows { try? await Task.sleep(until: begin + Self.settleTime) }
            } catch {
                // Another one shows the screen: two programs that ask again and again would replace each other for ever.
                // A program that lacks its manifest is refused by another code, and may get the manifest later.
                if error.code == .notPermitted { throw error }
                if problem != "\(error)" { log("\(error); trying again") }
                problem = "\(error)"
                revision = nil
                screen.change { $0.lose() }
                try await Task.sleep(for: backoff.next())
            }
        }
    }

    /// Does what the person wants. The refusal of a sign-in is shown.
    package func carryOut(_ request: ScreenRequest, on screen: CompositorScreen) async {
        let application = BrokerProtocol.screenIdentifier
        var refusal: SharedDeviceError?
        do throws(SharedDeviceError) {
            switch request {
            case .stay:
                let fields: BrokerProtocol.Fields = ["application": .string(application)]
                _ = try await broker.call(.reportActivity, fields, attempted: "report that the device is in use")
            case .signIn(let credentials):
                _ = try await broker.signIn(credentials, as: application, wait: Self.cleanupWait)
            }
        } catch {
            refusal = error
            log("\(error)")
        }
        screen.change { [refusal] in
            switch request {
            case .stay: $0.finishStay()
            case .signIn: $0.finish(refusal, now: .now)
            }
        }
    }
}
