// A process that calls notify(3), or notifyd itself (`runNotifydClient`), for the tests between processes. Each line of
// its standard input is a number and a command. The reply is a line that begins with the number. Each call of a handler
// prints another line.

import Basics
import CNotify.Private
import Dispatch
import Glibc
import NotifyCenter
import notify

/// Prints a whole line, from any thread.
func say(_ line: String) { _ = writeAll(line + "\n", to: STDOUT_FILENO) }

func registered(_ status: UInt32, _ token: Int32) -> String { status == 0 ? "token \(token)" : "status \(status)" }

/// Runs `work` on several threads at the same time, and waits for them.
func together(_ count: Int, _ work: @escaping @Sendable (Int) -> Void) {
    let start = DispatchSemaphore(value: 0)
    let ended = DispatchGroup()
    for index in 0..<count {
        // Each queue runs on its own thread.
        DispatchQueue(label: "together.\(index)").async(group: ended) {
            start.wait()
            work(index)
        }
    }
    for _ in 0..<count { start.signal() }
    ended.wait()
}

/// Registers on the reading thread while the process's first registration, on another thread, waits for the bus.
func registerInHandler() -> String {
    let (begins, registered) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    let observation = try? DarwinNotifyCenter.default.observe("go", delivery: .immediate) { _ in
        begins.wait()
        // Enough time for the other thread to be inside. If it is not, this checks nothing, and does not fail.
        usleep(200_000)
        var token: Int32 = -1
        if notify_register_check("inner", &token) == 0 { registered.signal() }
    }
    guard let observation, (try? DarwinNotifyCenter.default.post("go")) != nil else { return "no bus" }
    begins.signal()
    var token: Int32 = -1
    let status = notify_register_check("outer", &token)
    guard registered.wait(timeout: .now() + 120) == .success else { return "deaf" }
    observation.cancel()
    return "status \(status)"
}

func answer(_ command: String, _ arguments: [Substring]) -> String {
    let first = String(arguments.first ?? "")
    let number = Int32(first) ?? -1
    let second = arguments.dropFirst().first.map(String.init) ?? ""
    var token: Int32 = -1
    switch command {
    case "check": return registered(notify_register_check(first, &token), token)
    case "plain": return registered(notify_register_plain(first, &token), token)
    case "dispatch":
        return registered(notify_register_dispatch(first, &token, .global()) { say("called \($0)") }, token)
    case "post": return "status \(notify_post(first))"
    case "read":
        var check: Int32 = -1
        let status = notify_check(number, &check)
        return status == 0 ? "check \(check)" : "status \(status)"
    case "cancel": return "status \(notify_cancel(number))"
    case "suspend": return "status \(notify_suspend(number))"
    case "resume": return "status \(notify_resume(number))"
    case "set": return "status \(notify_set_state(number, UInt64(second) ?? 0))"
    case "get":
        var state: UInt64 = 0
        let status = notify_get_state(number, &state)
        return status == 0 ? "state \(state)" : "status \(status)"
    case "post-and-read":
        // Posts, makes a call that waits for a reply, and checks, without a pause.
        var (check, state): (Int32, UInt64) = (-1, 0)
        let statuses = [notify_post(second), notify_get_state(number, &state), notify_check(number, &check)]
        return statuses == [0, 0, 0] ? "check \(check)" : "statuses \(statuses)"
    case "monitor":
        let path = strdup(second)
        defer { free(path) }
        return "status \(notify_monitor_file(number, path, arguments.dropFirst(2).first.flatMap { Int32($0) } ?? 0))"
    case "storm":
        // Each of these threads registers names, posts them, cancels them, and posts after each step.
        let count = Int(second) ?? 0
        together(Int(number)) { thread in
            for index in 0..<count {
                var token: Int32 = -1
                notify_register_check("storm.\(thread).\(index)", &token)
                notify_post("entered.storm.\(thread).\(index)")
                notify_cancel(token)
                notify_post("left.storm.\(thread).\(index)")
            }
        }
        return "done"
    case "post-in-tasks":
        // More tasks than there are threads for tasks, of which there is one for each processor.
        let posted = DispatchGroup()
        for _ in 0..<(4 * sysconf(CInt(_SC_NPROCESSORS_ONLN))) {
            posted.enter()
            Task {
                if notify_post(first) == 0 { posted.leave() }
            }
        }
        return posted.wait(timeout: .now() + 120) == .success ? "posted" : "not posted"
    case "register-in-handler": return registerInHandler()
    case "suspend-process": return "status \(notify_suspend_pid(number))"
    case "dump": return "status \(notify_dump_status(first))"
    default: return "unknown"
    }
}

if CommandLine.arguments.dropFirst().first == "notifyd" {
    try runNotifydClient()
    exit(0)
}
if CommandLine.arguments.count == 4, CommandLine.arguments[1] == "fork" {
    try ForkLoad.run(CommandLine.arguments[2], Int(CommandLine.arguments[3]) ?? 0)
}
DispatchQueue.global().async {
    while let line = readLine() {
        let words = line.split(separator: " ")
        guard words.count >= 2 else { continue }
        say("\(words[0]) \(answer(String(words[1]), Array(words.dropFirst(2))))")
    }
    exit(0)
}
dispatchMain()
