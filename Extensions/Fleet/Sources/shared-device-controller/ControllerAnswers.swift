import Basics
import Cryptography
import DBus
import Dispatch
import Fleet
import Synchronization

/// The controller's responses to requests. Requests that examine every device, of which there may be 100,000, run one
/// after another on a separate queue and in slices. Reports are handled in between, and no thread of the Swift runtime
/// blocks.
final class ControllerAnswers: Sendable {
    typealias Fields = [String: DBusValue]

    /// The devices examined in one slice, during which the state is locked: about a millisecond.
    static let slice = 1000

    private let service: ControllerService
    private let queue = DispatchQueue(label: "answers")
    private let latest = Locked<Count?>(nil)

    private struct Count {
        let order: RecordedOrder
        /// The uptime at its beginning.
        let begin: Double
        /// Without the names of the order's devices, which only some requests want.
        let fields: Fields
    }

    /// The certificates of the listed devices.
    private struct Terms {
        /// The uptime and the state's revision at the beginning of the look.
        var (begin, revision): (Double, UInt64) = (-.infinity, .max)
        var ends = CertificateEnds()
    }

    private let terms = Locked(Terms())
    /// How long the result is valid, in seconds: during a cleanup the state changes all the time.
    private static let termsAge = 5.0
    /// How long the result is valid while no device reports, in seconds. It is bounded, because the ends come nearer.
    private static let longestTermsAge = 3600.0

    init(service: ControllerService) { self.service = service }

    private func onQueue<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async -> Value {
        await withCheckedContinuation { continuation in queue.async { continuation.resume(returning: body()) } }
    }

    // MARK: Orders

    func order(_ request: Fields) async throws(FleetRefusal) -> Fields {
        await waitForChange(after: request["revision"]?.unsignedValue, request)
        let (wanted, asked) = (request["order"]?.unsignedValue, ControllerService.uptime)
        let hasNames = Self.wantsNames(request)
        let fields = await onQueue { [self] () -> Fields? in
            guard let count = progress(of: wanted, asked: asked) else { return nil }
            let fields = count.fields.merging(certificateFields()) { $1 }
            return hasNames ? fields.merging(Self.names(of: count.order)) { $1 } : fields
        }
        guard let fields else {
            throw FleetRefusal(wanted.map { "there is no order \($0); see “fleet orders”" } ?? "no order was given yet")
        }
        return fields
    }

    /// Waits for a change, up to the request's time.
    private func waitForChange(after known: UInt64?, _ request: Fields) async {
        guard let known, case .double(let seconds)? = request["wait"], seconds.isFinite else { return }
        let deadline = ControllerService.uptime + min(max(seconds, 0), FleetProtocol.longestWait)
        while known == service.read({ state, _ in state.revision }), ControllerService.uptime < deadline,
            !Task.isCancelled
        {
            try? await Task.sleep(for: ControllerService.pause)
        }
    }

    /// Counts the devices of an order, unless a count began after the request. Called on the queue.
    private func progress(of wanted: UInt64?, asked: Double) -> Count? {
        let begin = ControllerService.uptime
        // Reads the revision first, so that changes during the count are news for the next request.
        let (recorded, revision) = service.read { state, _ in
            (wanted.map { state.order($0) } ?? state.orders.last, state.revision)
        }
        guard let recorded else { return nil }
        if let latest = latest.withLock({ $0 }), latest.order.number == recorded.number, latest.begin >= asked {
            return latest
        }
        var progress = OrderProgress(of: recorded, atMost: FleetProtocol.mostDevices)
        var hasMore = true
        while hasMore {
            (progress, hasMore) = service.read { [progress] state, _ in
                var progress = progress
                let hasMore = progress.count(Self.slice, in: state, now: ControllerService.wall)
                return (progress, hasMore)
            }
        }
        let fields = service.read { [progress] state, _ in Self.fields(progress, revision, state) }
        let count = Count(order: recorded, begin: begin, fields: fields)
        latest.withLock { $0 = count }
        return count
    }

    // MARK: Certificates

    /// Examines the reported certificates of the devices. Called on the queue.
    private func currentTerms() -> Terms {
        let (known, now) = (terms.withLock { $0 }, ControllerService.uptime)
        let revision = service.read { state, _ in state.revision }
        let age = now - known.begin
        if age < Self.termsAge || (known.revision == revision && age < Self.longestTermsAge) { return known }
        var found = Terms()
        (found.begin, found.revision) = (now, revision)
        var last: String?
        while true {
            let (ends, next): ([Double], String?) = service.read { [last] state, _ in
                let some = state.names[(last.map(state.place(after:)) ?? 0)...].prefix(Self.slice)
                let listed = some.lazy.compactMap { state.devices[$0] }.filter(\.isListed)
                return (Array(listed.compactMap { $0.report?.certificateEnd }), some.last)
            }
            for end in ends { found.ends.add(end, now: ControllerService.wall) }
            guard let next else { break }
            last = next
        }
        terms.withLock { [found] in $0 = found }
        return found
    }

    /// The ends of certificates, and the warning about them. Called on the queue.
    private func certificateFields() -> Fields {
        let (ends, own) = (currentTerms().ends, service.certificateEnd)
        var fields: Fields = ["certificatesEnding": .uint64(ends.ended + ends.near)]
        if let own = try? own?.get() { fields["certificateEnd"] = .double(own) }
        if let end = ends.next { fields["devicesCertificateEnd"] = .double(end) }
        let warnings = [ControllerService.certificateWarning(own), ends.warning(now: ControllerService.wall)]
            .compactMap(\.self)
        if !warnings.isEmpty { fields["warning"] = .string(warnings.joined(separator: "; ")) }
        return fields
    }

    private static func fields(_ progress: OrderProgress, _ revision: UInt64, _ state: ControllerState) -> Fields {
        let counts = zip(Standing.words, progress.counts.byRank).filter { $0.1 > 0 }
        var fields = fields(progress.order).merging([
            "revision": .uint64(revision), "isConnected": .boolean(state.isConnected),
            "total": .uint64(progress.counts.total), "undoneCount": .uint64(progress.counts.undone),
            "counts": .fields(Dictionary(uniqueKeysWithValues: counts.map { ($0.0, .uint64($0.1)) })),
            "undone": .array(
                progress.worst.map { .fields(Self.fields($0.name, $0.standing, state.devices[$0.name])) },
                of: "a{sv}"
            ),
            "waived": .uint64(progress.counts.waived), "enforced": .uint64(progress.counts.enforced),
        ]) { $1 }
        if let refusal = state.refusal(of: progress.order) { fields["refusal"] = .string(refusal) }
        return fields
    }

    private static func fields(_ recorded: RecordedOrder) -> Fields {
        var fields: Fields = [
            "order": .uint64(recorded.number), "at": .double(recorded.at), "reason": .string(recorded.order.reason),
            "all": .boolean(recorded.names == nil),
        ]
        if let session = recorded.order.session { fields["session"] = .uint64(session) }
        if let count = recorded.count { fields["count"] = .uint64(count) }
        return fields
    }

    private static func names(of recorded: RecordedOrder) -> Fields {
        guard let names = recorded.names else { return [:] }
        return ["devices": .array(names.prefix(FleetProtocol.mostDevices).map { .string($0) }, of: "s")]
    }

    /// Whether the response names devices. A page that follows a fleet shows only their numbers, and 100 orders may
    /// name 100,000 devices.
    private static func wantsNames(_ request: Fields) -> Bool { request["names"]?.booleanValue ?? true }

    private static func fields(_ name: String, _ standing: Standing, _ device: FleetDevice?) -> Fields {
        var fields: Fields = ["device": .string(name), "state": .string(standing.word)]
        switch standing {
        case .cleaning(let debts, let more), .stuck(let debts, let more):
            fields["owing"] = .array(debts.map { .string("\($0.app) (\($0.progress))") }, of: "s")
            fields["owes"] = .uint64(UInt64(debts.count) + more)
        case .unreachable(let since):
            fields["since"] = since.map { .double($0) }
            // The device signs out by itself, without the controller.
            fields["signsOutBy"] = device?.endsBy.map { .double($0) }
        case .refused(let text): fields["detail"] = .string(text)
        case .clean, .nobody, .unknown: break
        }
        return fields
    }

    func orders(_ request: Fields) async -> Fields {
        let limit = Int(clamping: request["limit"]?.unsignedValue ?? 20)
        let hasNames = Self.wantsNames(request)
        return await onQueue { [self] in
            let recorded = service.read { state, _ in state.orders.suffix(min(limit, ControllerState.mostOrders)) }
            let orders = recorded.reversed().map { order -> DBusValue in
                let fields = Self.fields(order)
                return .fields(hasNames ? fields.merging(Self.names(of: order)) { $1 } : fields)
            }
            return ["orders": .array(orders, of: "a{sv}")]
        }
    }

    // MARK: Devices

    func devices(_ request: Fields) async -> Fields {
        await waitForChange(after: request["changedAfter"]?.unsignedValue, request)
        return await onQueue { [self] in page(request) }
    }

    /// Called on the queue.
    private func page(_ request: Fields) -> Fields {
        let most = min(Int(clamping: request["limit"]?.unsignedValue ?? 1000), FleetProtocol.mostDevices)
        // Reads the revision first, so that later changes are news for the next request.
        let (revision, since) = service.read { state, _ in
            // A revision from the future is another controller's, and one from before a device was forgotten does not
            // cover that removal. Both count as 0.
            let known = request["changedAfter"]?.unsignedValue.flatMap { $0 > state.revision ? nil : $0 }
            return (state.revision, known.flatMap { $0 < state.forgottenAt ? nil : $0 } ?? 0)
        }
        var (names, last): ([String], String?) = ([], request["after"]?.stringValue)
        var (hasMore, isAtEnd) = (false, false)
        while !hasMore, !isAtEnd {
            let known = names.count
            let (some, next): ([String], String?) = service.read { [last] state, _ in
                let rest = state.names[(last.map(state.place(after:)) ?? 0)...].prefix(Self.slice)
                let some = rest.lazy.filter { since == 0 || state.devices[$0]?.changedAt ?? 0 > since }
                return (Array(some.prefix(most - known + 1)), rest.last)
            }
            names += some.prefix(most - known)
            hasMore = some.count > most - known
            (last, isAtEnd) = (next, next == nil)
        }
        let certificates = certificateFields()
        return service.read { [names, hasMore] state, problem in
            let recorded = request["order"]?.unsignedValue.flatMap(state.order)
            var fields: Fields = [
                "revision": .uint64(revision), "isWhole": .boolean(since == 0), "time": .double(ControllerService.wall),
                "isConnected": .boolean(state.isConnected), "highest": .uint64(state.highest),
                "foreign": .uint64(state.foreignCount), "old": .uint64(state.oldCount),
                "listed": .uint64(UInt64(state.listedCount)),
                "unlisted": .uint64(UInt64(state.devices.count - state.listedCount)),
                "devices": .array(names.map { .fields(Self.fields($0, state, recorded)) }, of: "a{sv}"),
                "more": .boolean(hasMore),
            ]
            if let problem { fields["problem"] = .string(problem) }
            if let refusal = state.refusal(of: nil) { fields["refusal"] = .string(refusal) }
            return fields.merging(certificates) { $1 }
        }
    }

    func device(_ request: Fields) throws(FleetRefusal) -> Fields {
        guard let name = request["device"]?.stringValue else {
            throw FleetRefusal("no device is named; name one in “device”")
        }
        let fields: Fields? = service.read { state, _ in
            guard let device = state.devices[name] else { return nil }
            var fields = Self.fields(name, state, request["order"]?.unsignedValue.flatMap(state.order))
            let offset = device.clockOffset ?? 0
            let rounds = (device.report?.rounds ?? []).map { DBusValue.fields(Self.fields($0, clockOffset: offset)) }
            fields["rounds"] = .array(rounds, of: "a{sv}")
            fields["time"] = .double(ControllerService.wall)
            fields["revision"] = .uint64(state.revision)
            return fields
        }
        guard let fields else { throw FleetRefusal("\(name.quoted) is no device of this fleet; see “fleet devices”") }
        return fields
    }

    /// - Parameter clockOffset: the seconds by which the device's clock is ahead of the controller's.
    private static func fields(_ round: DeviceReport.Round, clockOffset: Double) -> Fields {
        let apps = round.steps.map { step -> DBusValue in
            var fields: Fields = [
                "identifier": .string(step.app), "progress": .string(step.progress),
                // The report does not tell whether a process is missing.
                "isRunning": .boolean(true),
            ]
            for (key, time) in [("toldAfter", step.told), ("begunAfter", step.begun), ("finishedAfter", step.finished)]
            {
                if let time { fields[key] = .double(Double(time) / 1000) }
            }
            return .fields(fields)
        }
        let total = round.finished + round.waived + round.enforced + round.owes
        var fields: Fields = [
            "session": .uint64(round.session), "outcome": .string(round.owes == 0 ? "complete" : "open"),
            "apps": .array(apps, of: "a{sv}"), "more": .uint64(total - min(total, UInt64(apps.count))),
        ]
        if let ended = round.ended { fields["endedAt"] = .double(ended - clockOffset) }
        return fields
    }

    /// The device's fields, and its progress with the order if that targets it.
    private static func fields(_ name: String, _ state: ControllerState, _ recorded: RecordedOrder?) -> Fields {
        let device = state.devices[name]
        guard let device, let recorded, recorded.isFor(name, device) else { return fields(name, device) }
        let standing = device.standing(
            recorded.number,
            recorded.scope,
            highest: state.highest,
            now: ControllerService.wall
        )
        return fields(name, device).merging(fields(name, standing, device)) { $1 }
    }

    private static func fields(_ name: String, _ device: FleetDevice?) -> Fields {
        guard let device else { return ["device": .string(name)] }
        var fields: Fields = [
            "device": .string(name), "isListed": .boolean(device.isListed),
            "groups": .array(device.groups.map { .string($0) }, of: "s"),
        ]
        if let isOnline = device.isOnline { fields["isOnline"] = .boolean(isOnline) }
        if let at = device.reportedAt { fields["reportedAt"] = .double(at) }
        if let offset = device.clockOffset { fields["clockOffset"] = .double(offset) }
        guard let report = device.report else { return fields }
        fields["mode"] = .string(report.mode)
        if let session = report.session { fields["session"] = .uint64(session) }
        fields["owes"] = .uint64(report.rounds.reduce(0) { $0 + $1.owes })
        fields["seenAll"] = .uint64(report.seen.all)
        fields["seenOwn"] = .uint64(report.seen.own)
        if let end = report.certificateEnd { fields["certificateEnd"] = .double(end) }
        fields["problems"] = .array(report.problems.map { .string($0) }, of: "s")
        return fields
    }
}
