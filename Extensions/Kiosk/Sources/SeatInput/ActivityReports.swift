import Basics
package import DBus
@_spi(Extensions) package import SharedDevice

/// Reports to the broker that the device is in use, while it is.
///
/// The broker may think that the last use was an interval later than it was, never earlier. A report that fails is not
/// repeated after a pause: it would say that the device is in use now.
package struct ActivityReports: Sendable {
    /// The least time between two reports.
    static let interval = Duration.seconds(3)
    /// The longest time between two reports, after failures.
    static let longestWait = Duration.seconds(30)

    let input: any SeatInput
    let interval: Duration
    let report: @Sendable () async throws(SharedDeviceError) -> Void
    let log: @Sendable (String) -> Void

    init(
        of input: any SeatInput,
        interval: Duration,
        log: @escaping @Sendable (String) -> Void,
        report: @escaping @Sendable () async throws(SharedDeviceError) -> Void
    ) {
        (self.input, self.interval, self.log, self.report) = (input, interval, log, report)
    }

    /// Reports to the broker on this bus; throws if there is no such bus. `log` takes a line for the administrator.
    package init(
        of input: any SeatInput,
        to bus: Bus,
        log: @escaping @Sendable (String) -> Void
    ) throws(SharedDeviceError) {
        let broker = try BrokerAdministration(bus: bus)
        let fields: BrokerProtocol.Fields = ["application": .string(BrokerProtocol.activityIdentifier)]
        self.init(of: input, interval: Self.interval, log: log) { () throws(SharedDeviceError) in
            _ = try await broker.call(.reportActivity, fields, attempted: "report that the device is in use")
        }
    }

    /// Reports until the task is cancelled.
    ///
    /// - Throws: ``SeatInputError`` when the session's input is gone; `CancellationError`.
    package func run() async throws {
        var backoff = Backoff(first: interval, longest: max(interval, Self.longestWait))
        var problem: String?
        var wait = interval
        while true {
            // Also before the first report: a program that is started again and again must not keep a session alive.
            let moment = SuspendingClock.now
            try await Task.sleep(for: wait)
            try await input.next(after: moment)
            do throws(SharedDeviceError) {
                try await report()
                if problem != nil { log("the broker gets the reports again") }
                problem = nil
                backoff.reset()
                wait = interval
            } catch {
                try Task.checkCancellation()
                if problem != "\(error)" { log("\(error); trying again") }
                problem = "\(error)"
                wait = backoff.next()
            }
        }
    }
}
