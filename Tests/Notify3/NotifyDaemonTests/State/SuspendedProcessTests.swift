import NotifyCenter
import Testing

@testable import notifyd

@Suite struct SuspendedProcessTests {
    private var state = DaemonState(process: 77, user: 501)
    private let user = Identity(user: 501, process: 10)

    init() throws {
        _ = state.arrived(":1.1", user)
        _ = try state.enter(":1.1", ["n"])
    }

    // Rules, a.3 and a.10
    @Test mutating func suspensionOfAProcessIsCountedForAllItsConnections() throws {
        let root = Identity(user: 0, process: 1)
        let suspensions = [try state.suspendProcess(10, by: root), try state.suspendProcess(10, by: user)]
        #expect(suspensions == Array(repeating: [.suspend(connection: ":1.1", times: 1)], count: 2))
        #expect(state.firstReport?.suspensions == 2)
        var resumptions: [[DaemonState.Action]] = []
        for _ in 0..<3 { resumptions.append(try state.resumeProcess(10, by: user)) }
        #expect(resumptions == [[.resume(connection: ":1.1")], [.resume(connection: ":1.1")], []])
        for _ in 0..<2 { _ = try state.suspendProcess(10, by: user) }
        let second = state.arrived(":1.2", user)
        state.gone(":1.1")
        let third = state.arrived(":1.3", user)
        state.gone(":1.2")
        state.gone(":1.3")
        // Another process may have this process id now.
        let another = state.arrived(":1.4", user)
        let expected: [[DaemonState.Action]] = [
            [.suspend(connection: ":1.2", times: 2)], [.suspend(connection: ":1.3", times: 2)], [],
        ]
        #expect([second, third, another] == expected)
    }

    @Test func onlyRootAndTheProcesssUserSuspend() {
        let stranger = Identity(user: 502, process: 1)
        let calls: [(process: UInt32, caller: Identity, silent: Set<String>, refusal: NotifydProtocol.ErrorName)] = [
            (10, stranger, [], .notAuthorized), (11, user, [], .noSuchProcess), (0, user, [], .noSuchProcess),
            // The process does not read. The bus would store one more message for it with each call.
            (10, user, [":1.1"], .limitsExceeded),
        ]
        for (process, caller, silent, refusal) in calls {
            let suspended = state.refusal { _ = try $0.suspendProcess(process, by: caller, silent: silent) }
            let resumed = state.refusal { _ = try $0.resumeProcess(process, by: caller, silent: silent) }
            #expect([suspended, resumed] == [refusal, refusal], "\(process) by \(caller.user)")
        }
    }
}
