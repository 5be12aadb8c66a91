// A process with notifications. With arguments it uses Foundation's center (`runFoundationProbe`). Without arguments it
// has a distributed center, runs the commands on its standard input, and prints each delivery as a line `LABEL NAME
// OBJECT`. Everything happens on the main queue, as in an app. Each command prints one line:
//
//     observe LABEL BEHAVIOR NAME OBJECT     `*` is any name or object; prints `observing LABEL`
//     suspend | resume                       prints `suspended` or `resumed`
//     post NAME OBJECT [immediately | everywhere]    prints `posted`
//     waiting                                prints `waiting COUNT`
//     hear NAME                              observes the Darwin name; prints `hearing`
//     choke                                  makes standard error a full pipe without a reader; prints `choked`
//     memory                                 prints `memory KIB`: the peak resident memory since the last `memory`
import Dispatch
import Glibc
import NotifyCenter

/// Writes without stdio, because a killed process loses its buffered output.
func say(_ line: String) {
    let bytes = Array("\(line)\n".utf8)
    guard write(STDOUT_FILENO, bytes, bytes.count) == bytes.count else { exit(1) }
}

/// Returns the peak resident memory since the last call. Each call resets the peak.
func peakResidentKiB() throws -> Int {
    guard let status = fopen("/proc/self/status", "r") else { return -1 }
    defer { fclose(status) }
    var line = [CChar](repeating: 0, count: 256)
    var peak = -1
    while fgets(&line, CInt(line.count), status) != nil {
        let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        guard text.hasPrefix("VmHWM:") else { continue }
        peak = text.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first.flatMap { Int($0) } ?? -1
    }
    guard let references = fopen("/proc/self/clear_refs", "w") else { return -1 }
    fputs("5", references)
    fclose(references)
    return peak
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
        case ("suspend", 1), ("resume", 1):
            center.isSuspended = words[0] == "suspend"
            return center.isSuspended ? "suspended" : "resumed"
        case ("waiting", 1):
            return "waiting \(center.statistics.waiting)"
        case ("hear", 2):
            let name = NotificationName(String(words[1]))
            observations.append(try darwin.observe(name, delivery: .main) { say("darwin \($0.name)") })
            return "hearing"
        case ("choke", 1):
            choke()
            return "choked"
        case ("memory", 1):
            return "memory \(try peakResidentKiB())"
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
        default:
            return "not understood: \(words.joined(separator: " "))"
        }
    }
}

let words = Array(CommandLine.arguments.dropFirst())
if !words.isEmpty {
    try runFoundationProbe(words)
    exit(0)
}
let probe = Probe()
DispatchQueue(label: "input").async {
    while let line = readLine() {
        DispatchQueue.main.sync { MainActor.assumeIsolated { probe.perform(line) } }
    }
    exit(0)
}
dispatchMain()
