import DBusTransport
import Glibc
import NotifydProtocol

extension DaemonService {
    /// How long notifyd waits for processes that do not answer, because they are stopped or do not use this library.
    private static let patience = Duration.seconds(1)
    /// How many calls may wait for an answer at once: a system bus allows a connection 128.
    private static let callsAtOnce = 64

    // MARK: The start

    /// Waits until all processes with registrations have reported them. A process sends its report before it answers a call that
    /// comes after the inquiry, so notifyd calls every connection of the bus.
    func gather() async {
        let deadline = ContinuousClock.now + Self.patience
        do throws(DBusError) {
            let names = try await connection.call(
                .methodCall(
                    destination: "org.freedesktop.DBus",
                    path: "/org/freedesktop/DBus",
                    interface: "org.freedesktop.DBus",
                    member: "ListNames"
                )
            )
            let own = connection.uniqueName
            let others = (names.first?.stringsValue ?? []).filter { $0.hasPrefix(":") && $0 != own }
            await call(others, until: deadline)
        } catch {
            Diagnostics.write("could not ask the bus for its connections: \(error)")
        }
        // notifyd handles a report when the bus has said who sent it.
        for identification in identifications.values { await identification.value }
        // When this notifyd has answered a call, later changes of a path are reported.
        await watchesBegan(until: deadline)
    }

    private func call(_ names: [String], until deadline: ContinuousClock.Instant) async {
        await withTaskGroup(of: Void.self) { group in
            for (index, name) in names.enumerated() {
                if index >= Self.callsAtOnce { await group.next() }
                let connection = connection
                group.addTask {
                    let rest = deadline - .now
                    guard rest > .zero,
                        let ping = try? DBusMessage.methodCall(
                            destination: name,
                            path: "/",
                            interface: "org.freedesktop.DBus.Peer",
                            member: "Ping"
                        )
                    else { return }
                    // An error is an answer too, also one that says that the connection is gone.
                    _ = try? await connection.call(ping, timeout: rest)
                }
            }
        }
    }

    func gathered() {
        let waiting = untilGathered ?? []
        untilGathered = nil
        state.gathered()
        for work in waiting { carryOut(work) }
    }

    // MARK: Lists

    /// The lists of all names and processes.
    struct Listings: Sendable {
        let names: [NameListing]
        let processes: [ProcessListing]
    }

    func list(_ work: IncomingWork) throws(Refusal) {
        try makeList(for: work.sender) {
            let listings = await self.inquire()
            work.succeed([
                .array(listings.names.map(\.value), of: "a{sv}"),
                .array(listings.processes.map(\.value), of: "a{sv}"),
            ])
        }
    }

    func status(_ work: IncomingWork) throws(Refusal) {
        try makeList(for: work.sender) { work.succeed([.string(await self.statusText(isLong: true))]) }
    }

    private func makeList(for sender: String, _ body: @escaping () async -> Void) throws(Refusal) {
        guard listsUnderWay[sender] ?? 0 < state.limits.listsAtOnce else {
            throw Refusal(
                .limitsExceeded,
                "a connection may wait for \(state.limits.listsAtOnce) lists at once; wait for their answers"
            )
        }
        listsUnderWay[sender, default: 0] += 1
        Task {
            await body()
            let count = listsUnderWay[sender] ?? 0
            listsUnderWay[sender] = count > 1 ? count - 1 : nil
        }
    }

    /// The lists after all processes with registrations have reported in full after this call, or their time is over.
    func inquire() async -> Listings {
        await withCheckedContinuation { continuation in
            if inquiries.want(continuation) { beginInquiry() }
        }
    }

    private func beginInquiry() {
        let number = inquiries.takeNumber()
        do throws(DBusError) {
            try connection.send(NotifydProtocol.signal(.tell, [.uint64(number), .boolean(true)]))
        } catch {
            Diagnostics.write("\(error)")
        }
        inquiries.began(number, awaiting: state.connectionsToAnswer(number))
        Task {
            // Nobody cancels this task, so the sleep ends in time.
            try? await Task.sleep(for: Self.patience)
            finishInquiry(expired: number)
        }
        finishInquiry()
    }

    func finishInquiry(expired: UInt64? = nil) {
        guard let (waiters, again) = inquiries.finish(expired: expired) else { return }
        // Once for all of them.
        let listings = Listings(names: state.nameListings, processes: state.processListings)
        for waiter in waiters { waiter.resume(returning: listings) }
        if again { beginInquiry() }
    }
}

// Requests of an administrator by signals (Rules, a.15).
extension DaemonService {
    /// Reads the configuration again. Existing registrations stay, also if the new configuration forbids them. If the file cannot be used,
    /// the previous configuration stays in force.
    package func reload() {
        guard let configuration = (try? configurationSource.load(isFirst: false)) ?? nil else { return }
        let before = configurationInForce
        configurationInForce = configuration
        state.configure(configuration)
        if (before.monitors, before.rules) != (configuration.monitors, configuration.rules) { watchConfigured() }
    }

    /// Writes the status to the file of this process; short, or with all names and processes.
    package func writeStatus(isLong: Bool) async {
        let text = await statusText(isLong: isLong)
        do throws(StatusFileError) {
            try StatusFile.write(text)
        } catch {
            Diagnostics.write("\(error)")
        }
    }

    func statusText(isLong: Bool) async -> String {
        let listings =
            isLong ? await inquire() : Listings(names: state.nameListings, processes: state.processListings)
        let paths = paths?.figures ?? PathWatcher.Figures()
        let status = StatusText(
            process: UInt32(getpid()),
            bus: "\(connection.bus)",
            configuration: configurationSource.path,
            reservations: configurationInForce.rules.reservations.count,
            figures: figures,
            paths: paths,
            names: listings.names,
            processes: listings.processes
        )
        return isLong ? status.summary + status.details : status.summary
    }
}
