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
    @Test mutating func suspensionOfAProcessIsCounted() throws {
        let root = Identity(user: 0, process: 1)
        let suspensions = [try state.suspendProcess(10, by: root), try state.suspendProcess(10, by: user)]
        #expect(suspensions == Array(repeating: [.suspend(connection: ":1.1", times: 1)], count: 2))
        #expect(state.page(0, for: .root).processes.first?.report.suspensions == 2)
        var resumptions: [[DaemonState.Action]] = []
        for _ in 0..<3 { resumptions.append(try state.resumeProcess(10, by: user)) }
        #expect(resumptions == [[.resume(connection: ":1.1")], [.resume(connection: ":1.1")], []])
    }

    // Otherwise the bus would store one more message for it with each call.
    @Test func aProcessThatDoesNotReadIsNotSuspended() {
        let suspended = state.refusal { _ = try $0.suspendProcess(10, by: user, silent: [":1.1"]) }
        #expect(suspended == .limitsExceeded)
        let resumed = state.refusal { _ = try $0.resumeProcess(10, by: user, silent: [":1.1"]) }
        #expect(resumed == .limitsExceeded)
    }

    @Test func onlyRootAndTheProcesssUserSuspend() {
        let stranger = Identity(user: 502, process: 1)
        #expect(state.refusal { _ = try $0.suspendProcess(10, by: stranger) } == .notAuthorized)
        #expect(state.refusal { _ = try $0.resumeProcess(10, by: stranger) } == .notAuthorized)
        for process in [11, 0] as [UInt32] {
            #expect(state.refusal { _ = try $0.suspendProcess(process, by: user) } == .noSuchProcess)
            #expect(state.refusal { _ = try $0.resumeProcess(process, by: user) } == .noSuchProcess)
        }
    }

    @Test mutating func aSecondConnectionOfASuspendedProcessIsSuspendedToo() throws {
        _ = try state.suspendProcess(10, by: user)
        _ = try state.suspendProcess(10, by: user)
        let result6 = state.arrived(":1.2", user)
        #expect(result6 == [.suspend(connection: ":1.2", times: 2)])
        state.gone(":1.1")
        let result7 = state.arrived(":1.3", user)
        #expect(result7 == [.suspend(connection: ":1.3", times: 2)])
        state.gone(":1.2")
        state.gone(":1.3")
        // Another process may have this process id now.
        let result8 = state.arrived(":1.4", user)
        #expect(result8 == [])
    }
}
