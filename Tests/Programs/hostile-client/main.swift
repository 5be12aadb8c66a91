// A hostile client, which tests run as another user. It attacks notifyd (`runHostileNotifier`) or the broker:
// hostile-client BUS DEED [NUMBER…]. It prints "ready" when it is at work, and a line that begins with LEAK for each
// response with information that it must not have. It runs until it is killed.
import Basics
import DBus
import Foundation
import Glibc
@_spi(Extensions) import SharedDevice
import Synchronization

/// Bypasses stdio, whose buffered lines would be lost when the process is killed.
func say(_ text: String) { _ = writeAll("\(text)\n", to: STDOUT_FILENO) }

// Many connections need many descriptors.
var files = rlimit()
getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
files.rlim_cur = files.rlim_max
setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
if CommandLine.arguments.dropFirst().first == "notifyd" {
    try runHostileNotifier(Array(CommandLine.arguments.dropFirst(2)))
    exit(0)
}
let (address, deed) = (CommandLine.arguments[1], CommandLine.arguments[2])
let numbers = CommandLine.arguments.dropFirst(3).compactMap { UInt32($0) }
let isReady = Locked(false)
let knowsAccount = Locked(false)
let parent = getppid()
/// Whether the broker may tell this client about the account or the device.
let mayKnow = ["watches-device", "enrolled"].contains(deed)

func connect() throws -> DBusConnection { try DBusConnection.open(Bus(name: address)) }

/// A bus that is about to end refuses connections. An uncaught error would crash this program, and the backtrace would
/// take a minute.
func connectOrEnd() -> DBusConnection {
    do { return try connect() } catch {
        say("no connection: \(error)")
        exit(69)
    }
}

func call(_ connection: DBusConnection, _ method: BrokerProtocol.Method, _ fields: BrokerProtocol.Fields) async {
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
        let secrets = ["account", "token", "owed", "round", "overdue", "entries", "apps", "request"]
        for key in secrets where answer[key] != nil && !mayKnow { say("LEAK \(method.rawValue) \(key)") }
        let isFirst =
            answer["account"] != nil
            && knowsAccount.withLock { knows in
                defer { knows = true }
                return !knows
            }
        if isFirst, mayKnow { say("knows the account") }
    } catch {
        // The message must not depend on whether the password is correct.
        if !mayKnow, error.message.contains("password") { say("LEAK \(method.rawValue): \(error.message)") }
    }
    sayReady()
}

/// Calls a method that every object has, and ignores the response.
func ask(_ connection: DBusConnection, _ interface: String, _ member: String, _ arguments: [DBusValue]) async {
    let message = try? DBusMessage.methodCall(
        destination: BrokerProtocol.busName,
        path: BrokerProtocol.path,
        interface: "org.freedesktop.DBus." + interface,
        member: member,
        arguments: arguments
    )
    if let message { _ = try? await connection.call(message, timeout: .seconds(60)) }
    sayReady()
}

func sayReady() {
    isReady.withLock { isReady in
        if !isReady { say("ready") }
        isReady = true
    }
}

/// A connection of the effective user to the bus. Nothing reads from it.
func rawConnection() -> CInt {
    let raw = connectedSocket(address)
    let words = greeting(of: geteuid()) + Array("BEGIN\r\n".utf8) + BusDriver.call("Hello").bytes(serial: 1)
    if raw < 0 || write(raw, words, words.count) != words.count { say("no connection: \(errno)") }
    return raw
}

/// A call of the broker's object, without arguments.
func rawCall(_ interface: String, _ member: String, wantsAnswer: Bool = true) -> WireMessage {
    var call = WireMessage.call(member, of: interface, at: BrokerProtocol.path, to: BrokerProtocol.busName)
    call.wantsAnswer = wantsAnswer
    return call
}

/// A call that expects no reply, with a text of this many bytes.
func silentCall(_ bytes: Int) -> [UInt8] {
    var call = rawCall(BrokerProtocol.interface, BrokerProtocol.Method.getCurrentAccount.rawValue, wantsAnswer: false)
    call.signature = "a{sv}"
    call.body = WireBuffer {
        $0.array(alignment: 8) { entries in
            entries.string("application")
            entries.signature("s")
            entries.string(String(repeating: "x", count: bytes))
        }
    }
    return call.bytes(serial: 2)
}

/// Runs the body again and again, with this many runs at once.
func repeatedly(_ width: Int, _ body: @escaping @Sendable (Int) async throws -> Void) async {
    await withTaskGroup(of: Void.self) { group in
        for lane in 0..<width {
            group.addTask {
                var round = lane
                // The client ends if the test was killed.
                while getppid() == parent {
                    try? await body(round)
                    round += width
                }
            }
        }
    }
}

let connection = connectOrEnd()

/// Calls the methods in turn without end, with this many calls at once.
func callInTurn(
    _ width: Int,
    _ methods: [BrokerProtocol.Method],
    _ fields: @escaping @Sendable (Int) -> BrokerProtocol.Fields
) async {
    await repeatedly(width) { round in await call(connection, methods[round % methods.count], fields(round)) }
}

switch deed {
case "passwords":
    // S1, S5: guesses with existing names, including the correct password.
    await callInTurn(60, [.join, .leave, .signIn]) { round in
        [
            "application": .string("org.example.control"), "username": .string("ada"),
            "password": .string(round.isMultiple(of: 2) ? "correct horse ada" : "wrong \(round)"),
        ]
    }
case "bodies":
    // S4: the library refuses to send over 16 MB.
    let text = String(repeating: "x", count: 15 << 20)
    await callInTurn(2, [.getCurrentAccount]) { _ in ["application": .string(text)] }
case "reports":
    // S2
    await callInTurn(30, [.reportCleanup]) { round in
        [
            "application": .string("org.example.app\(round % 1000)"), "session": .uint64(UInt64(round)),
            "progress": .string("failed"), "detail": .string("\(round) " + String(repeating: "d", count: 1500)),
        ]
    }
case "names":
    // S10, S14: claims to be various apps.
    await repeatedly(30) { round in
        await call(connection, .getCurrentAccount, ["application": .string("org.example.control\(round)")])
        await call(connection, .getCurrentAccount, ["application": .string("org.example.control")])
        let account = DBusValue.string("ada")
        await call(connection, .signOut, ["accountIdentifier": account, "application": .string("org.example.control")])
        await call(connection, .signOutAnyone, ["reason": .string("me")])
        await call(connection, .waive, ["app": .string("org.example.control"), "reason": .string("me")])
        await call(connection, .getRunningApps, [:])
    }
case "enforces":
    // Only root's enforcement unit may enforce, whatever the calls claim.
    await repeatedly(30) { round in
        await call(connection, .getOverdue, ["application": .string("org.example.control"), "wait": .double(60)])
        let fields: BrokerProtocol.Fields = [
            "app": .string("org.example.control"), "user": .uint32(round.isMultiple(of: 2) ? 0 : 65534),
            "sessions": .array((0..<200).map { .uint64($0) }, of: "t"), "detail": .string("\(round) files"),
        ]
        await call(connection, .reportEnforcement, fields)
    }
case "prompts":
    // Begins sign-ins without completing them, and tries to complete those of other callers.
    let text = String(repeating: "q", count: 8000)
    let ways = ["password", "browser", "deviceCode"].map { DBusValue.string($0) }
    await callInTurn(60, [.beginSignIn, .completeSignIn, .awaitSignIn, .cancelSignIn]) { round in
        [
            "application": .string(BrokerProtocol.promptIdentifier), "request": .string("\(round)"),
            "methods": .array(ways, of: "s"),
            "redirectURI": .string("http://127.0.0.1:80/callback"), "loginHint": .string("ada"),
            "query": .string("code=\(text)"), "username": .string("ada"), "password": .string("wrong \(round)"),
            "scopes": .array([.string("openid")], of: "s"), "wait": .double(60),
        ]
    }
case "tokens":
    // Requests tokens, and reports as if from the provider that all sessions have ended.
    await callInTurn(60, [.acquireTokenSilently, .reportActivity, .reportProviderEvents]) { round in
        let event: BrokerProtocol.Fields = [
            "kind": .string("ended"), "issuer": .string("https://login.example.com"), "subject": .string("ada"),
            "time": .double(Date().timeIntervalSince1970),
        ]
        let scopes = (0..<100).map { DBusValue.string("https://orders.example/\(round) \($0)") }
        return [
            "application": .string("org.example.control"), "accountIdentifier": .string("ada"),
            "scopes": .array(scopes, of: "s"),
            "forceRefresh": .boolean(true), "events": .array(Array(repeating: .fields(event), count: 100), of: "a{sv}"),
        ]
    }
case "standard":
    // The interfaces that every object on a bus has.
    let interface = DBusValue.string(BrokerProtocol.interface)
    let calls: [(interface: String, member: String, arguments: [DBusValue])] = [
        ("Properties", "GetAll", [interface]), ("Properties", "Get", [interface, .string("SigningKeys")]),
        ("Properties", "Set", [interface, .string("Mode"), .variant(.string("personal"))]), ("Peer", "Ping", []),
        ("Peer", "GetMachineId", []), ("Introspectable", "Introspect", []),
    ]
    await repeatedly(60) { round in
        let call = calls[round % calls.count]
        await ask(connection, call.interface, call.member, call.arguments)
    }
case "enrolled":
    // An app of the device that makes all calls that it may make, except a sign-out.
    let methods: [BrokerProtocol.Method] = [
        .getCurrentAccount, .reportCleanup, .getRound, .acquireTokenSilently, .signIn, .beginSignIn, .completeSignIn,
        .awaitSignIn, .cancelSignIn, .reportActivity, .reportCleanup,
    ]
    await callInTurn(100, methods) { round in
        [
            "application": .string("org.example.hostile"), "accountIdentifier": .string("ada"),
            "username": .string("ada"), "password": .string("wrong \(round)"), "session": .uint64(UInt64(round)),
            "progress": .string(["begun", "failed", "finished"][round % 3]),
            // Most requests do not wait, so that all lanes make progress.
            "wait": .double(round.isMultiple(of: 40) ? 60 : 0),
            "detail": .string("\(round) " + String(repeating: "d", count: 1500)), "forceRefresh": .boolean(true),
            "methods": .array([.string("password")], of: "s"), "request": .string("\(round)"),
        ]
    }
case "watches-device", "watches-strangers":
    // All requests of the console with the longest patience, on many connections, including requests that this client
    // may not make.
    let others = (0..<20).map { _ in connectOrEnd() }
    await repeatedly(400) { round in
        let fields: BrokerProtocol.Fields = [
            "wait": .double(60), "revision": .uint64(UInt64.random(in: 0...20)), "after": .uint64(UInt64(1 << 40)),
            "limit": .uint64(500), "administration": .boolean(true), "awaitsEnd": .boolean(true),
        ]
        let methods = [BrokerProtocol.Method.getStatus, .getLog, .getRound, .getOverdue, .reportEnforcement]
        await call(others[round % others.count], methods[round % methods.count], fields)
    }
case "questions":
    await callInTurn(200, [.getRound]) { _ in ["application": .string("org.example.control"), "wait": .double(60)] }
case "information": await callInTurn(60, [.getDeviceInformation]) { _ in [:] }
case "newcomers":
    // S6
    await repeatedly(40) { _ in
        let newcomer = try connect()
        await call(newcomer, .getCurrentAccount, ["application": .string("org.example.control")])
        newcomer.close()
    }
case "never-reads", "never-reads-description":
    // Sends calls and reads no reply. It uses raw sockets because libdbus would read while it writes. The descriptions
    // amount to 200 MB: dbus-daemon stops reading from a service for which it has queued 127 MB. It refuses calls of a
    // connection that waits for 128 replies, so the calls are sent in portions. It drops what exceeds 127 MB unread on
    // one connection, so several connections are needed.
    let isShort = deed == "never-reads"
    let interface = isShort ? BrokerProtocol.interface : "org.freedesktop.DBus.Introspectable"
    let member = isShort ? BrokerProtocol.Method.getDeviceInformation.rawValue : "Introspect"
    let sockets = (0..<4).map { _ in rawConnection() }
    for serial in UInt32(2)..<30_000 {
        if serial.isMultiple(of: 64) { usleep(5000) }
        let call = rawCall(interface, member).bytes(serial: serial)
        _ = write(sockets[Int(serial) % sockets.count], call, call.count)
    }
    say("ready")
    raise(SIGSTOP)
case "unanswered":
    // Requests descriptions without expecting a reply, as fast as the bus accepts the calls.
    let sockets = (0..<8).map { _ in rawConnection() }
    let call = rawCall("org.freedesktop.DBus.Introspectable", "Introspect", wantsAnswer: false).bytes(serial: 2)
    let calls = Array(repeating: call, count: 64).flatMap { $0 }
    say("ready")
    while getppid() == parent {
        for socket in sockets { _ = write(socket, calls, calls.count) }
    }
case "silent-crowd":
    // Small calls without reply on sixteen connections, as fast as the bus accepts them.
    let sockets = (0..<16).map { _ in rawConnection() }
    let call = silentCall(100)
    say("ready")
    for socket in sockets {
        Thread.detachNewThread {
            var sent = 0
            while getppid() == parent {
                let count = call[sent...].withUnsafeBytes { write(socket, $0.baseAddress, $0.count) }
                if count < 0 { return say("the bus has hung up: \(errno)") }
                sent = (sent + count) % call.count
            }
        }
    }
    while getppid() == parent { sleep(1) }
case "crowd":
    // Calls without reply from many users, with this many bytes each, as fast as the bus accepts them. Must be started
    // by root.
    let (users, bytes) = (numbers[0], Int(numbers[1]))
    // Lowers the priority so that all threads together have the weight of two threads of other programs. systemd gives
    // all users together as much processor time as the services. Each level of niceness reduces a thread's weight by a
    // fifth.
    _ = nice(CInt(max(0, (log(Double(users) / 2) / log(1.25)).rounded(.up))))
    // The kernel reports the effective user at the time of the connection, and all threads of a process share it.
    let identity = Locked(())
    let connection = { @Sendable (user: uid_t) in
        identity.withLock { _ in
            seteuid(20_000 + user)
            defer { seteuid(0) }
            return rawConnection()
        }
    }
    let call = silentCall(bytes)
    let sockets = (0..<users).map(connection)
    say("ready")
    for (user, first) in zip(0..<users, sockets) {
        Thread.detachNewThread {
            var (socket, sent) = (first, 0)
            while getppid() == parent {
                let count = call.withUnsafeBytes {
                    send(socket, $0.baseAddress! + sent, $0.count - sent, Int32(MSG_NOSIGNAL))
                }
                if count < 0 {
                    // dbus-daemon disconnects a client that sends a message over its limit.
                    close(socket)
                    (socket, sent) = (connection(user), 0)
                } else {
                    sent = (sent + count) % call.count
                }
            }
        }
    }
    while getppid() == parent { sleep(1) }
case "first-bodies":
    // New connections that each send as much as a connection may send before its user is known.
    let scopes = DBusValue.array((0..<1500).map { .string("s\($0)") }, of: "s")
    await repeatedly(200) { _ in
        let newcomer = try connect()
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<7 { group.addTask { await call(newcomer, .getCurrentAccount, ["scopes": scopes]) } }
        }
        newcomer.close()
    }
case "squats":
    // Requests the broker's name with all combinations of flags.
    let ways: [BusNameOptions] = [[], .doNotQueue, [.allowReplacement, .replaceExisting], .replaceExisting]
    await repeatedly(8) { round in
        do {
            try await connection.requestName(BrokerProtocol.busName, options: ways[round % ways.count])
            say("LEAK it is the broker")
        } catch {
            // Printed only now and then, which shows the test that the attempts go on.
            if round % 1000 < 8 { say(round < 8 ? "ready" : "refused") }
        }
    }
case "half-open":
    // Connections that send nothing, never ask for a name, or never read the response. Each is kept until the bus
    // closes it.
    await repeatedly(60) { round in
        let silent = connectedSocket(address)
        defer { close(silent) }
        if silent >= 0, round % 3 > 0 {
            let words = greeting(of: getuid()) + Array((round % 3 == 1 ? "" : "BEGIN\r\n").utf8)
            _ = write(silent, words, words.count)
        }
        if round % 60 == 59 { say("ready") }
        // Waits until the bus hangs up, for a second at most, without reading its output.
        var byte: UInt8 = 0
        for _ in 0..<20 where recv(silent, &byte, 1, Int32(MSG_PEEK | MSG_DONTWAIT)) != 0 {
            try await Task.sleep(for: .milliseconds(50))
        }
    }
case "watches":
    while inotify_init1(Int32(IN_CLOEXEC)) >= 0 {}
    say(errno == EMFILE ? "ready" : "no limit was reached: \(errno)")
    while getppid() == parent { sleep(1) }
default:
    say("there is no deed “\(deed)”")
    exit(64)
}
