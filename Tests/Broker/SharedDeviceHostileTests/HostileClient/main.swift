// A client that means harm, for tests that run it as another user: hostile-client BUS DEED. It writes “ready” when its first calls were
// answered, and a line that begins with LEAK for each answer that tells it what it must not know. It goes on until it is killed.
import DBusTransport
import Foundation
import Glibc
import SharedDevice
import Synchronization

/// Past stdio: a line in its buffer would die with the process.
func say(_ text: String) {
    let line = Array("\(text)\n".utf8)
    _ = write(STDOUT_FILENO, line, line.count)
}

let (address, deed) = (CommandLine.arguments[1], CommandLine.arguments[2])
let isReady = Locked(false)
let parent = getppid()

func connect() throws -> DBusConnection { try DBusConnection.open(Bus(name: address)) }

func call(
    _ connection: DBusConnection,
    _ method: BrokerProtocol.Method,
    _ fields: BrokerProtocol.Fields
) async {
    let message = try? DBusMessage.methodCall(
        destination: BrokerProtocol.busName,
        path: BrokerProtocol.path,
        interface: BrokerProtocol.interface,
        member: method.rawValue,
        arguments: method == .getDeviceInformation ? [] : [.fields(fields)]
    )
    guard let message else {
        say("no such message can be made")
        exit(70)
    }
    do {
        let answer = try await connection.call(message, timeout: .seconds(60)).first?.fieldsValue ?? [:]
        for key in ["account", "token", "owed", "round"] where answer[key] != nil {
            say("LEAK \(method.rawValue) \(key)")
        }
    } catch {
        // The same words whether a password is right or wrong.
        if error.message.contains("password") { say("LEAK \(method.rawValue): \(error.message)") }
    }
    isReady.withLock { isReady in
        if !isReady { say("ready") }
        isReady = true
    }
}

/// Does it again and again, so many times at once.
func repeatedly(_ width: Int, _ body: @escaping @Sendable (Int) async throws -> Void) async {
    await withTaskGroup(of: Void.self) { group in
        for lane in 0..<width {
            group.addTask {
                var round = lane
                // A test that was killed does not leave it behind.
                while getppid() == parent {
                    try? await body(round)
                    round += width
                }
            }
        }
    }
}

let connection = try connect()
switch deed {
case "passwords":
    // S1, S5: guesses, also the right one, with names that exist.
    await repeatedly(60) { round in
        let fields: BrokerProtocol.Fields = [
            "application": .string("org.example.control"), "username": .string("ada"),
            "password": .string(round.isMultiple(of: 2) ? "correct horse ada" : "wrong \(round)"),
        ]
        await call(connection, [.join, .leave, .signIn][round % 3], fields)
    }
case "bodies":
    // S4: a body of 15 MB; the library makes none over 16.
    let text = String(repeating: "x", count: 15 << 20)
    await repeatedly(2) { _ in await call(connection, .getCurrentAccount, ["application": .string(text)]) }
case "reports":
    // S2: each one different.
    await repeatedly(30) { round in
        let detail = "\(round) " + String(repeating: "d", count: 1500)
        let fields: BrokerProtocol.Fields = [
            "application": .string("org.example.app\(round % 1000)"), "session": .uint64(UInt64(round)),
            "progress": .string("failed"), "detail": .string(detail),
        ]
        await call(connection, .reportCleanup, fields)
    }
case "names":
    // S10, S14: whatever app it may be.
    await repeatedly(30) { round in
        await call(connection, .getCurrentAccount, ["application": .string("org.example.control\(round)")])
        await call(connection, .getCurrentAccount, ["application": .string("org.example.control")])
        await call(
            connection,
            .signOut,
            ["accountIdentifier": .string("ada"), "application": .string("org.example.control")]
        )
        await call(connection, .signOutAnyone, ["reason": .string("me")])
        await call(connection, .waive, ["app": .string("org.example.control"), "reason": .string("me")])
        await call(connection, .getRunningApps, [:])
    }
case "questions":
    await repeatedly(200) { _ in
        let fields: BrokerProtocol.Fields = ["application": .string("org.example.control"), "wait": .double(60)]
        await call(connection, .getRound, fields)
    }
case "information":
    await repeatedly(60) { _ in await call(connection, .getDeviceInformation, [:]) }
case "newcomers":
    // S6: a new connection for each call.
    await repeatedly(40) { _ in
        let newcomer = try connect()
        await call(newcomer, .getCurrentAccount, ["application": .string("org.example.control")])
        newcomer.close()
    }
case "never-reads":
    // Sends what is answered, and stops before it reads any of it.
    for _ in 0..<20_000 {
        let message = try DBusMessage.methodCall(
            destination: BrokerProtocol.busName,
            path: BrokerProtocol.path,
            interface: BrokerProtocol.interface,
            member: BrokerProtocol.Method.getDeviceInformation.rawValue,
            arguments: []
        )
        try? connection.send(message)
    }
    say("ready")
    raise(SIGSTOP)
default:
    say("there is no deed “\(deed)”")
    exit(64)
}
