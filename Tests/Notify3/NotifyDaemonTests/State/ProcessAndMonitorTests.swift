import NotifydProtocol
import Testing

@testable import NotifyDaemon

@Suite struct ProcessAndMonitorTests {
    private var state = DaemonState(process: 77, user: 501)
    private let user = Identity(user: 501, process: 10)

    init() throws {
        _ = state.arrived(":1.1", user)
        _ = try state.enter(":1.1", ["n"])
    }

    // Rules, a.3 and a.10
    @Test mutating func suspensionOfAProcessIsCounted() throws {
        let root = Identity(user: 0, process: 1)
        let result1 = try state.suspendProcess(10, by: root)
        #expect(result1 == [.suspend(connection: ":1.1", times: 1)])
        let result2 = try state.suspendProcess(10, by: user)
        #expect(result2 == [.suspend(connection: ":1.1", times: 1)])
        #expect(state.processListings.first?.report.suspensions == 2)
        let result3 = try state.resumeProcess(10, by: user)
        #expect(result3 == [.resume(connection: ":1.1")])
        let result4 = try state.resumeProcess(10, by: user)
        #expect(result4 == [.resume(connection: ":1.1")])
        let result5 = try state.resumeProcess(10, by: user)
        #expect(result5 == [])
    }

    @Test func onlyRootAndTheProcesssUserSuspend() {
        #expect(
            state.refusal { _ = try $0.suspendProcess(10, by: Identity(user: 502, process: 1)) } == .notAuthorized
        )
        #expect(
            state.refusal { _ = try $0.resumeProcess(10, by: Identity(user: 502, process: 1)) } == .notAuthorized
        )
        #expect(state.refusal { _ = try $0.suspendProcess(11, by: user) } == .noSuchProcess)
        #expect(state.refusal { _ = try $0.suspendProcess(0, by: user) } == .noSuchProcess)
    }

    @Test mutating func aSecondConnectionOfASuspendedProcessIsSuspendedToo() throws {
        _ = try state.suspendProcess(10, by: user)
        _ = try state.suspendProcess(10, by: user)
        let result6 = state.arrived(":1.2", user)
        #expect(result6 == [.suspend(connection: ":1.2", times: 2)])
        _ = state.gone(":1.1")
        let result7 = state.arrived(":1.3", user)
        #expect(result7 == [.suspend(connection: ":1.3", times: 2)])
        _ = state.gone(":1.2")
        _ = state.gone(":1.3")
        // Another process may have this process id now.
        let result8 = state.arrived(":1.4", user)
        #expect(result8 == [])
    }

    // Rules, a.13
    @Test mutating func onlyTheAskingRegistrationIsTold() throws {
        let actions = try state.monitor(":1.1", token: 4, name: "n", path: "/etc/hosts", flags: 2)
        #expect(actions == [.watch(id: 1, path: "/etc/hosts", flags: 2, as: user)])
        #expect(state.changed(1) == [.tell(connection: ":1.1", token: 4)])
        let result9 = try state.monitor(":1.1", token: 4, name: "n", path: "/etc/hosts", flags: 2)
        #expect(result9 == [])
        let result10 = state.unmonitor(":1.1", 4)
        #expect(result10 == [.unwatch(id: 1)])
        #expect(state.changed(1) == [])
        let result11 = state.unmonitor(":1.1", 4)
        #expect(result11 == [])
    }

    @Test mutating func monitorsEndWithTheirNameTheirConnectionAndAFailure() throws {
        _ = try state.monitor(":1.1", token: 4, name: "m", path: "/a", flags: 0)
        let result12 = state.leave(":1.1", ["m"])
        #expect(result12 == [.unwatch(id: 1)])
        _ = try state.monitor(":1.1", token: 4, name: "m", path: "/a", flags: 0)
        state.watchFailed(2)
        #expect(state.changed(2) == [])
        _ = try state.monitor(":1.1", token: 4, name: "m", path: "/a", flags: 0)
        let result13 = state.gone(":1.1")
        #expect(result13 == [.unwatch(id: 3)])
        #expect(state.changed(3) == [])
        #expect(state.monitorCount == 0)
    }

    @Test mutating func aTokenMonitorsOnePath() throws {
        _ = try state.monitor(":1.1", token: 4, name: "n", path: "/a", flags: 0)
        #expect(
            state.refusal { _ = try $0.monitor(":1.1", token: 4, name: "n", path: "/b", flags: 0) } == .invalidRequest
        )
        #expect(
            state.refusal { _ = try $0.monitor(":1.1", token: 5, name: "n", path: "a", flags: 0) } == .invalidRequest
        )
        #expect(
            state.refusal { _ = try $0.monitor(":1.1", token: 5, name: "n", path: "", flags: 0) } == .invalidRequest
        )
        let long = "/" + String(repeating: "a", count: 4095)
        #expect(
            state.refusal { _ = try $0.monitor(":1.1", token: 5, name: "n", path: long, flags: 0) } == .invalidRequest
        )
        #expect(
            state.refusal { _ = try $0.monitor(":1.1", token: 5, name: "user.uid.1", path: "/a", flags: 0) }
                == .notAuthorized
        )
    }

    @Test mutating func aProcessMayMonitorSoManyPaths() throws {
        for token in Int32(0)..<1024 {
            _ = try state.monitor(":1.1", token: token, name: "n", path: "/a", flags: 0)
        }
        #expect(
            state.refusal { _ = try $0.monitor(":1.1", token: 2000, name: "n", path: "/a", flags: 0) }
                == .limitsExceeded
        )
    }
}
