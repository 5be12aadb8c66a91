import DBus
import Fleet
import FleetStage
import FoundationEssentials
import Glibc

/// A client of the controller's D-Bus interface.
package struct ControllerQuestions: Sendable {
    private typealias Fields = [String: DBusValue]

    package struct Progress: Sendable {
        package let total: Int
        package let undone: Int
        package let counts: [String: Int]

        package var done: Int { total - undone }
        /// The counts in one line, the worst first.
        package var line: String {
            Standing.words.compactMap { word in counts[word].map { "\($0) \(word)" } }.joined(separator: ", ")
        }
    }

    private let connection: DBusConnection

    package init(bus address: String) throws { connection = try DBusConnection.open(Bus(name: address)) }

    private func call(_ method: FleetProtocol.Method, _ request: Fields) async throws -> Fields {
        let message = try DBusMessage.methodCall(
            destination: FleetProtocol.busName,
            path: FleetProtocol.path,
            interface: FleetProtocol.interface,
            member: method.rawValue,
            arguments: [.fields(request)]
        )
        return try await connection.call(message, timeout: .seconds(60)).first?.fieldsValue ?? [:]
    }

    package func list(_ names: [String]) async throws {
        for start in stride(from: 0, to: names.count, by: FleetProtocol.mostNamed) {
            let some = names[start..<min(start + FleetProtocol.mostNamed, names.count)].map { DBusValue.string($0) }
            let none = DBusValue.array([], of: "s")
            _ = try await call(.listDevices, ["devices": .array(some, of: "s"), "groups": none])
        }
    }

    /// Orders a sign-out of all devices.
    ///
    /// - Returns: the order's number.
    package func signOutAll() async throws -> UInt64 {
        try await call(.signOut, ["all": .boolean(true), "reason": .string("load")])["order"]?.unsignedValue ?? 0
    }

    /// The names of devices that count as done with an order; there may be 100,000.
    package func done(_ order: UInt64) async throws -> [String] {
        var (done, last): ([String], String?) = ([], nil)
        while true {
            var request: Fields = ["order": .uint64(order)]
            if let last { request["after"] = .string(last) }
            let answer = try await call(.getDevices, request)
            let devices = (answer["devices"]?.elementsValue ?? []).compactMap(\.fieldsValue)
            for fields in devices {
                let word = fields["state"]?.stringValue ?? ""
                let isDone = Standing.words.firstIndex(of: word).map { $0 >= Standing.firstDoneRank } ?? false
                if isDone, let name = fields["device"]?.stringValue { done.append(name) }
            }
            last = devices.last?["device"]?.stringValue
            guard answer["more"]?.booleanValue == true, last != nil else { return done }
        }
    }

    package func progress() async throws -> Progress {
        let answer = try await call(.getOrder, [:])
        let number = { (name: String) in Int(clamping: answer[name]?.unsignedValue ?? 0) }
        let counts = (answer["counts"]?.fieldsValue ?? [:]).compactMapValues(\.unsignedValue)
        return Progress(
            total: number("total"),
            undone: number("undoneCount"),
            counts: counts.mapValues { Int(clamping: $0) }
        )
    }
}

/// The resources used by processes, by name, including processes that were killed.
struct UsageMeter: Sendable {
    private struct Usage: Sendable {
        let name: String
        /// In seconds.
        let processor: Double
        /// The peak, in kB.
        let memory: Int
    }

    private var processes: [Int32: Usage] = [:]

    var processor: Double { processes.values.reduce(0) { $0 + $1.processor } }

    var line: String {
        let named = Dictionary(grouping: processes.values) { $0.name }
        return named.sorted { $0.key < $1.key }.map { name, usages in
            let processor = usages.reduce(0.0) { $0 + $1.processor }
            let memory = usages.map(\.memory).max() ?? 0
            return "\(name) \(Int(processor.rounded())) s of processor, at most \(memory >> 10) MB"
        }.joined(separator: "; ")
    }

    /// Reads the usage of these processes. Must be called before one of them is killed.
    mutating func read(_ running: [(name: String, identifier: Int32)]) {
        for (name, identifier) in running {
            guard let stat = try? String(contentsOfFile: "/proc/\(identifier)/stat", encoding: .utf8),
                let status = try? String(contentsOfFile: "/proc/\(identifier)/status", encoding: .utf8),
                // The name of the program may contain spaces.
                let fields = stat.split(separator: ")").last?.split(separator: " "), fields.count > 13,
                let own = Double(fields[11]), let system = Double(fields[12])
            else { continue }
            let peak = status.split(separator: "\n").first { $0.hasPrefix("VmHWM") } ?? ""
            processes[identifier] = Usage(
                name: name,
                processor: (own + system) / Double(sysconf(CInt(_SC_CLK_TCK))),
                memory: Int(peak.filter(\.isNumber)) ?? 0
            )
        }
    }
}
