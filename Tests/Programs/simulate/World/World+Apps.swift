import BrokerCore
import DBus
import DeviceConfiguration
import Identity
@_spi(Extensions) import SharedDevice

/// Processes and their connections. The bus preserves the order of messages from one connection to another, and no
/// other order.
extension World {
    func connect(_ index: Int) {
        connections += 1
        slots[index].connection = ":1.\(connections)"
    }

    /// Ends the connection. Some of the last messages may never have left the process.
    private func disconnect(_ index: Int) {
        let connection = slots[index].connection
        var lost = random.below(slots[index].toBroker.count + 1)
        while lost > 0, case .request(let request)? = slots[index].toBroker.last, request.connection == connection {
            slots[index].toBroker.removeLast()
            lost -= 1
        }
        slots[index].toBroker.append(.left(connection))
        oracle.left(connection)
    }

    // MARK: Processes

    func startApp(_ index: Int) {
        guard !slots[index].isRunning, isBusUp, let home = slots[index].home else { return }
        note("process \(index) starts")
        connect(index)
        slots[index].toApp = []
        slots[index].process = AppProcess(home: home, mutant: mutant)
        slots[index].isHung = false
    }

    func killApp(_ index: Int) {
        guard slots[index].isRunning else { return }
        note("process \(index) is killed")
        forgetHeld(index)
        slots[index].process = nil
        disconnect(index)
        forgetAnswers(index)
    }

    /// The connection is lost and re-established with another name. The process continues.
    func dropConnection(_ index: Int) {
        guard slots[index].isRunning, isBusUp else { return }
        note("process \(index) loses its connection")
        disconnect(index)
        let left = slots[index].toBroker
        failCalls(index)
        connect(index)
        // Messages of the old connection arrive before those of the new one.
        slots[index].toBroker = left
        slots[index].toApp.append(.reconnected)
    }

    /// Records the debts of a process that the broker does not know of, because the process has lost its connection and
    /// has not called on the next one.
    private func forgetHeld(_ index: Int) {
        let connection = slots[index].connection
        let ledger = broker?.ledger ?? disk.ledger(at: now)
        guard let process = slots[index].process, !ledger.connections.contains(connection) else { return }
        for session in process.held { oracle.unheard.insert(Oracle.Debt(session: session.epoch, home: process.home)) }
    }

    private func forgetAnswers(_ index: Int) {
        unanswered = unanswered.filter { $0.value != index }
        slots[index].toApp = []
    }

    private func failCalls(_ index: Int) {
        // Messages that have arrived are read later, or lost with the connection.
        if random.chance(50) {
            for message in slots[index].toApp {
                switch message {
                case .reply(let number, _), .failed(let number): unanswered[number] = index
                case .broadcast, .reconnected: break
                }
            }
            slots[index].toApp = []
        }
        for number in unanswered.filter({ $0.value == index }).keys.sorted() {
            unanswered[number] = nil
            slots[index].toApp.append(.failed(number))
        }
    }

    func loseBus() {
        guard isBusUp else { return }
        // If the broker alone leaves the bus, the enforcer stays there.
        isEnforcerLeftOnBus = enforcer != nil && random.chance(50)
        note("the bus is lost" + (isEnforcerLeftOnBus ? ", but not by the enforcement" : ""))
        if !isEnforcerLeftOnBus { killEnforcer() }
        isBusUp = false
        for index in slots.indices {
            if index == Self.enforcer, isEnforcerLeftOnBus {
                failCalls(index)
                slots[index].toBroker = []
                continue
            }
            oracle.left(slots[index].connection)
            slots[index].toBroker = []
            if slots[index].isRunning { failCalls(index) } else { forgetAnswers(index) }
        }
        known = []
        starts = []
        screen = SimulatedScreen()
        feed(.busLost(mark: CleanupLedger.newMark()))
    }

    func restoreBus() {
        guard !isBusUp else { return }
        note("the bus is back")
        isBusUp = true
        for index in slots.indices where index != Self.enforcer || !isEnforcerLeftOnBus {
            connect(index)
            if slots[index].isRunning { slots[index].toApp.append(.reconnected) }
        }
        // The bus reports which of the connections that the broker has kept are gone.
        let present = enforcer.map { _ in slots[Self.enforcer].connection }
        for connection in (broker?.ledger.connections ?? []).sorted() where connection != present {
            feed(.left(connection, mark: CleanupLedger.newMark()))
        }
        feed(.busRestored)
    }

    // MARK: Messages

    func send(_ index: Int, _ number: UInt64, _ call: Request.Call, claiming name: String?) {
        let number = UInt64(index) << 32 | number
        let method = Self.method(call)
        note("process \(index) calls \(method), \(number)")
        guard isBusUp else { return slots[index].toApp.append(.failed(number)) }
        unanswered[number] = index
        let connection = slots[index].connection
        let request = Request(number: number, connection: connection, claimed: name, call: call, method: method)
        slots[index].toBroker.append(.request(request))
    }

    /// Sends a call of a program that queues no calls.
    @discardableResult
    func send(_ index: Int, _ call: Request.Call, claiming name: String? = nil) -> UInt64 {
        let number = slots[index].calls.send(call)
        slots[index].calls.sent = []
        send(index, number, call, claiming: name)
        return number
    }

    /// Sends the calls that the process has queued.
    func flush(_ index: Int) {
        let sent = slots[index].calls.sent
        slots[index].calls.sent = []
        for (number, call) in sent { send(index, number, call, claiming: slots[index].name) }
    }

    func brokerReads(_ index: Int) {
        guard !slots[index].toBroker.isEmpty else { return }
        switch slots[index].toBroker.removeFirst() {
        case .left(let connection):
            note("the broker hears that \(connection) has left")
            guard let broker else { break }
            guard known.remove(connection) != nil || broker.ledger.connections.contains(connection) else { break }
            if mutant == .endSettles { settleAll(index, connection) }
            feed(.left(connection, mark: CleanupLedger.newMark()))
        case .request(let request):
            if known.insert(request.connection).inserted { feed(.arrived(caller(index, request.connection))) }
            feed(.request(request))
        }
    }

    private func caller(_ index: Int, _ connection: String) -> Caller {
        let slot = slots[index]
        let user: UInt32 =
            switch mutant {
            case .debtByApp where slot.user == 1001: 1000
            case .throttleByName where slot.user == 6666: 1000
            default: slot.user
            }
        let label = slot.home.map { "\(homes[$0].participant.app) (enforce)" }
        return Caller(
            connection: connection,
            credentials: AppCredentials(user: user, executable: slot.executable, unit: unit(index), label: label),
            process: UInt32(index),
            isAdministrator: slot.user == 0
        )
    }

    private func unit(_ index: Int) -> String? {
        switch index {
        case Self.enforcer: AppCleanup.enforcementUnit
        case Self.service: "shared-device-identity.service"
        default: nil
        }
    }

    func appReads(_ index: Int) {
        guard !slots[index].toApp.isEmpty, var process = slots[index].process, let home = slots[index].home else {
            return
        }
        var message = slots[index].toApp.removeFirst()
        switch message {
        case .reply(let number, let result): message = .reply(number & 0xFFFF_FFFF, result)
        case .failed(let number): message = .failed(number & 0xFFFF_FFFF)
        default: break
        }
        note("process \(index) reads \(Self.describe(message))")
        slots[index].process = nil
        process.receive(message, &homes[home], &slots[index].calls, at: now.uptime)
        slots[index].process = process
        flush(index)
    }

    func appActs(_ index: Int) {
        guard var process = slots[index].process, let home = slots[index].home else { return }
        note("process \(index) goes on: \(process.keeper), \(process.follower)".prefix(160).description)
        slots[index].process = nil
        process.act(&homes[home], &slots[index].calls, at: now.uptime)
        slots[index].process = process
        flush(index)
    }

    private static func describe(_ message: AppProcess.Message) -> String {
        switch message {
        case .broadcast: "a broadcast"
        case .reconnected: "that it is connected again"
        case .reply(let number, .success): "reply \(number)"
        case .reply(let number, .failure(let refusal)): "reply \(number), \(refusal.code)"
        case .failed(let number): "that call \(number) has failed"
        }
    }

    private static func method(_ call: Request.Call) -> String {
        switch call {
        case .currentAccount: "getCurrentAccount"
        case .signIn(let credentials, _, _, _): "signIn of \(credentials.username ?? "a badge")"
        case .signOut: "signOut"
        case .acquireToken: "acquireTokenSilently"
        case .report(let progress, let session, _, _, _): "reportCleanup \(progress) of \(session)"
        case .waive: "waive"
        case .signOutAnyone: "signOutAnyone"
        case .cancelSignIn: "cancelSignIn"
        case .overdue: "getOverdue"
        case .enforced(let app, _, let sessions, _, _): "reportEnforcement of \(app), \(sessions.sorted())"
        default: "another method"
        }
    }
}
