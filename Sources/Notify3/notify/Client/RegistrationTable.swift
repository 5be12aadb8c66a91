import NotifyCenter

/// The registrations of this process: which of them a post notifies, and which notices are held back. Pure; the caller
/// makes the tokens.
///
/// A `Sink` receives the notices of a registration. A name holds its `Resource` while it has registrations.
struct RegistrationTable<Sink, Resource> {
    struct Registration {
        let name: NotificationName
        let kind: RegistrationKind
        let sink: Sink?
        /// The number of suspensions that are not undone yet (Rules, a.10).
        var suspensions: UInt32 = 0
        /// Whether a notice is held back. One notice stands for all posts during the suspension.
        var isPending = false
        var deliveries: UInt64 = 0
        var monitor: MonitorReport?
    }

    struct Notice {
        let token: CInt
        let sink: Sink
    }

    struct Name {
        let resource: Resource
        /// The tokens to notify, in the order of registration.
        var receivers = RegistrationList<CInt>()
        var registrationCount = 0
        var state: StateReport?

        fileprivate mutating func add(_ token: CInt, isReceiver: Bool) {
            registrationCount += 1
            if isReceiver { receivers.append(token, number: UInt64(token)) }
        }
    }

    private var names: [NotificationName: Name] = [:]
    private var registrations: [CInt: Registration] = [:]
    /// How often the whole process is suspended (`notify_suspend_pid`).
    private(set) var processSuspensions: UInt32 = 0

    // MARK: Names

    /// Returns the resource that a name holds; `nil` if the name has no registrations.
    func resource(of name: NotificationName) -> Resource? { names[name]?.resource }

    // MARK: Registrations

    subscript(token: CInt) -> Registration? { registrations[token] }

    /// Adds a registration. If it is the first of its name, the name holds `resource` from now on.
    mutating func add(_ token: CInt, name: NotificationName, kind: RegistrationKind, sink: Sink?, resource: Resource) {
        registrations[token] = Registration(name: name, kind: kind, sink: sink)
        names[name, default: Name(resource: resource)].add(token, isReceiver: sink != nil)
    }

    /// Ends a registration, and drops the notice that it holds back.
    ///
    /// - Returns: The registration, and the resource of the name if this was its last registration. The name's state is
    ///   then gone too (Rules, a.11).
    mutating func remove(_ token: CInt) -> (registration: Registration, lastOfName: Resource?)? {
        guard let registration = registrations.removeValue(forKey: token) else { return nil }
        guard let index = names.index(forKey: registration.name) else { return (registration, nil) }
        _ = names.values[index].receivers.remove(number: UInt64(token))
        names.values[index].registrationCount -= 1
        guard names.values[index].registrationCount == 0 else { return (registration, nil) }
        return (registration, names.remove(at: index).value.resource)
    }

    // MARK: Notices

    /// Takes a post. Returns the notices that are due, in the order of registration.
    mutating func posted(_ name: NotificationName) -> [Notice] {
        let tokens = names[name]?.receivers.observers ?? []
        return tokens.compactMap { token in token.flatMap { fired($0) } }
    }

    /// Takes an event for this registration. Returns the notice if it is due.
    mutating func fired(_ token: CInt) -> Notice? {
        guard let index = registrations.index(forKey: token), let sink = registrations.values[index].sink else {
            return nil
        }
        guard registrations.values[index].suspensions == 0, processSuspensions == 0 else {
            registrations.values[index].isPending = true
            return nil
        }
        registrations.values[index].isPending = false
        registrations.values[index].deliveries += 1
        return Notice(token: token, sink: sink)
    }

    // MARK: Suspension

    /// Holds back a token's notices. Returns false if there is no such token.
    mutating func suspend(_ token: CInt) -> Bool {
        guard let index = registrations.index(forKey: token) else { return false }
        let count = registrations.values[index].suspensions
        registrations.values[index].suspensions = count == .max ? .max : count + 1
        return true
    }

    /// Undoes one suspension of a token. Returns the notice that is due after the last suspension; `nil` if there is no
    /// such token.
    mutating func resume(_ token: CInt) -> Notice?? {
        guard let index = registrations.index(forKey: token) else { return nil }
        let count = registrations.values[index].suspensions
        guard count > 0 else { return .some(nil) }
        registrations.values[index].suspensions = count - 1
        return .some(count == 1 && registrations.values[index].isPending ? fired(token) : nil)
    }

    mutating func suspendProcess() {
        if processSuspensions < .max { processSuspensions += 1 }
    }

    /// Undoes one suspension of the process. Returns the notices that are due after the last suspension, in the order
    /// of registration.
    mutating func resumeProcess() -> [Notice] {
        guard processSuspensions > 0 else { return [] }
        processSuspensions -= 1
        guard processSuspensions == 0 else { return [] }
        return registrations.filter { $0.value.isPending }.keys.sorted().compactMap { fired($0) }
    }

    // MARK: State and paths

    /// Remembers a state that this process has set or has to keep, for a report to the next notifyd. Does nothing if
    /// the name has no registrations, or a newer state.
    mutating func setState(_ state: StateReport, of name: NotificationName) {
        guard let index = names.index(forKey: name) else { return }
        if (names.values[index].state?.time ?? 0) <= state.time { names.values[index].state = state }
    }

    /// Does the same as ``setState(_:of:)``. Returns the state that was remembered before.
    mutating func exchangeState(_ state: StateReport, of name: NotificationName) -> StateReport? {
        let before = names[name]?.state
        setState(state, of: name)
        return before
    }

    /// Undoes ``exchangeState(_:of:)``, unless another state was set after it.
    mutating func restoreState(_ before: StateReport?, of name: NotificationName, from state: StateReport) {
        if names[name]?.state == state { names[name]?.state = before }
    }

    /// The state of a `self.` name, which notifyd does not know.
    func state(of name: NotificationName) -> UInt64 { names[name]?.state?.value ?? 0 }

    /// Remembers the path of a registration, for a report to the next notifyd. Returns false if the registration has a
    /// path already, or has ended.
    mutating func addMonitor(_ monitor: MonitorReport) -> Bool {
        guard let index = registrations.index(forKey: monitor.token), registrations.values[index].monitor == nil else {
            return false
        }
        registrations.values[index].monitor = monitor
        return true
    }

    mutating func removeMonitor(of token: CInt) { registrations[token]?.monitor = nil }

    // MARK: Reports

    /// Returns the report to notifyd about these names. A detailed report contains the registrations.
    func report(of tellable: (NotificationName) -> Bool, detailed: Bool) -> ProcessReport {
        var reports: [NotificationName: NameReport] = [:]
        for (name, entry) in names where tellable(name) {
            reports[name] = NameReport(name: name.rawValue, state: entry.state)
        }
        // Only lists need the registrations. A report that tells states has to stay small.
        guard detailed else { return ProcessReport(suspensions: processSuspensions, names: Array(reports.values)) }
        for (token, registration) in registrations {
            if let monitor = registration.monitor { reports[registration.name]?.monitors.append(monitor) }
            let (kind, suspensions) = (registration.kind, registration.suspensions)
            reports[registration.name]?.registrations.append(
                .init(token: token, kind: kind, suspensions: suspensions, deliveries: registration.deliveries)
            )
        }
        for name in reports.keys { reports[name]?.registrations.sort { $0.token < $1.token } }
        return ProcessReport(suspensions: processSuspensions, names: Array(reports.values))
    }
}

extension RegistrationTable: Sendable where Sink: Sendable, Resource: Sendable {}
extension RegistrationTable.Registration: Sendable where Sink: Sendable, Resource: Sendable {}
extension RegistrationTable.Notice: Sendable where Sink: Sendable, Resource: Sendable {}
extension RegistrationTable.Name: Sendable where Sink: Sendable, Resource: Sendable {}
