// A process with notifications. With arguments it uses Foundation's center (`runFoundationProbe`). Without arguments it
// has a distributed center, runs the commands on its standard input, and prints each delivery as a line
// `LABEL NAME OBJECT`. Everything happens on the main queue, as in an app. Each command prints one line:
//
//     observe LABEL BEHAVIOR NAME OBJECT     `*` is any name or object; prints `observing LABEL`
//     suspend | resume                       prints `suspended` or `resumed`
//     post NAME OBJECT [immediately | everywhere]    prints `posted`
//     waiting                                prints `waiting COUNT`
//     hear NAME                              observes the Darwin name; prints `hearing`
//     choke                                  makes standard error a full pipe without a reader; prints `choked`
//     memory                                 prints `memory KIB`: the peak resident memory since the last `memory`
import Basics
import Dispatch
import Glibc
import NotifyCenter

/// Writes without stdio, because a killed process loses its buffered output.
func say(_ line: String) { guard writeAll("\(line)\n", to: STDOUT_FILENO) == 0 else { exit(1) } }

/// Returns the peak resident memory since the last call. Each call resets the peak.
func peakResidentKiB() throws -> Int {
    let status = String(decoding: try ReadableFile("/proc/self/status").prefix(1 << 16), as: UTF8.self)
    let line = status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") } ?? ""
    let references = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC)
    guard writeAll("5", to: references) == 0 else { return -1 }
    close(references)
    return Int(line.filter(\.isNumber)) ?? -1
}

/// Makes standard error a full pipe without a reader, where a write blocks forever.
func choke() {
    var ends: [CInt] = [-1, -1]
    guard pipe(&ends) == 0, dup2(ends[1], STDERR_FILENO) >= 0 else { exit(1) }
    _ = fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK)
    let bytes = [UInt8](repeating: 0, count: 4096)
    while write(STDERR_FILENO, bytes, bytes.count) > 0 {}
    _ = fcntl(STDERR_FILENO, F_SETFL, 0)
}

@MainActor
final class Probe {
    private let center = DistributedNotifyCenter.default
    private let darwin = DarwinNotifyCenter.default
    private var observations: [NotificationObservation] = []

    func perform(_ line: String) {
        do { say(try answer(line.split(separator: " "))) } catch { say("failed: \(error)") }
    }

    private func answer(_ words: [Substring]) throws -> String {
        func wildcard(_ word: Substring) -> String? { word == "*" ? nil : String(word) }
        switch (words.first, words.count) {
        case ("observe", 5):
            let behaviors: [Substring: SuspensionBehavior] = [
                "drop": .drop, "coalesce": .coalesce, "hold": .hold, "deliverImmediately": .deliverImmediately,
            ]
            let label = words[1]
            let observation = try center.observe(
                wildcard(words[3]).map { NotificationName($0) },
                object: wildcard(words[4]),
                delivery: .main,
                suspensionBehavior: behaviors[words[2]] ?? .drop
            ) { notification in
                say("\(label) \(notification.name) \(notification.object ?? "-")")
            }
            observations.append(observation)
            return "observing \(label)"
        case ("suspend", 1):
            center.isSuspended = true
            return "suspended"
        case ("resume", 1):
            center.isSuspended = false
            return "resumed"
        case ("waiting", 1): return "waiting \(center.statistics.waiting)"
        case ("hear", 2):
            let observation = try darwin.observe(NotificationName(String(words[1])), delivery: .main) { notification in
                say("darwin \(notification.name)")
            }
            observations.append(observation)
            return "hearing"
        case ("choke", 1):
            choke()
            return "choked"
        case ("memory", 1): return "memory \(try peakResidentKiB())"
        case ("post", 3...4):
            let options: [Substring: PostingOptions] = [
                "immediately": .deliverImmediately, "everywhere": .postToAllSessions,
            ]
            try center.post(
                NotificationName(String(words[1])),
                object: wildcard(words[2]),
                options: words.count > 3 ? options[words[3]] ?? [] : []
            )
            return "posted"
        default: return "not understood: \(words.joined(separator: " "))"
        }
    }
}

let words = Array(CommandLine.arguments.dropFirst())
if !words.isEmpty {
    runFoundationProbe(words)
    exit(0)
}
let probe = Probe()
DispatchQueue(label: "input").async {
    while let line = readLine() { DispatchQueue.main.sync { MainActor.assumeIsolated { probe.perform(line) } } }
    exit(0)
}
dispatchMain()
