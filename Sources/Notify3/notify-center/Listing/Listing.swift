import Basics
import CommandSupport
import Glibc
import NotifyCenter

/// One row for each registration. Pure, except for the names of users.
struct Listing {
    struct Row: Equatable {
        var process: UInt32?
        var user: UInt32?
        /// The path of the program; empty if this process may not see it.
        var program = ""
        var name: String
        var token: Int32?
        var kind: RegistrationKind?
        /// The suspensions of the registration and of the whole process together.
        var suspensions: UInt32 = 0
        var deliveries: UInt64?
        var state: UInt64
        /// The paths that it monitors in addition to the name.
        var paths: [String] = []
    }

    let rows: [Row]

    /// Lists the registrations of names that begin with `prefix`, by process, name and token; then the names without
    /// registrations.
    init(_ list: ListPage, prefix: String, program: (UInt32) -> String? = { _ in nil }) {
        func isWanted(_ name: String) -> Bool { name.utf8.starts(with: prefix.utf8) }
        let states = Dictionary(list.names.map { (NotificationName($0.name), $0.state) }) { $1 }
        var rows: [Row] = []
        var registered: Set<NotificationName> = []
        for process in list.processes {
            for name in process.report.names where isWanted(name.name) {
                registered.insert(NotificationName(name.name))
                rows += Self.rows(
                    process,
                    program(process.process) ?? "",
                    name,
                    state: states[NotificationName(name.name)] ?? name.state?.value ?? 0
                )
            }
        }
        rows.sort { Self.order($0, $1) }
        let others = list.names.filter { isWanted($0.name) && !registered.contains(NotificationName($0.name)) }
        rows += others.map { Row(name: $0.name, state: $0.state) }.sorted { Self.order($0, $1) }
        self.rows = rows
    }

    private static func rows(_ process: ProcessListing, _ program: String, _ name: NameReport, state: UInt64) -> [Row] {
        var row = Row(name: name.name, state: state)
        row.process = process.process
        row.user = process.user
        row.program = program
        row.suspensions = process.report.suspensions
        // The process has reported only the name.
        if name.registrations.isEmpty { return [row] }
        return name.registrations.map { registration in
            var row = row
            row.token = registration.token
            row.kind = registration.kind
            row.suspensions = row.suspensions.addingReportingOverflow(registration.suspensions).partialValue
            row.deliveries = registration.deliveries
            row.paths = name.monitors.filter { $0.token == registration.token }.map(\.path)
            return row
        }
    }

    private static func order(_ left: Row, _ right: Row) -> Bool {
        (left.process ?? 0, left.name, left.token ?? 0) < (right.process ?? 0, right.name, right.token ?? 0)
    }

    // MARK: Printing

    func json(userName: (UInt32) -> String?) -> [String] {
        rows.map { row in
            var line = JSONLine(row.process == nil ? "name" : "registration")
            line.add("name", row.name)
            line.add("pid", row.process)
            line.add("uid", row.user)
            line.add("user", row.user.flatMap(userName))
            line.add("program", row.program.isEmpty ? nil : row.program)
            line.add("token", row.token)
            line.add("kind", row.kind?.rawValue)
            line.add("suspended", row.suspensions)
            line.add("count", row.deliveries)
            line.add("state", row.state)
            line.add("paths", json: "[\(row.paths.map(JSONLine.quoted).joined(separator: ","))]")
            return line.text
        }
    }

    func table(userName: (UInt32) -> String?) -> TextTable {
        var table = TextTable(
            ["PID", "USER", "PROGRAM", "NAME", "TOKEN", "KIND", "SUSPENDED", "COUNT", "STATE"],
            rightAligned: [0, 4, 6, 7, 8]
        )
        for row in rows {
            func text(_ value: (some CustomStringConvertible)?) -> String { value.map(\.description) ?? "-" }
            let program = row.program.split(separator: "/").last.map { String($0).visible }
            let paths = row.paths.map { " + \($0.visible)" }.joined()
            table.add([
                text(row.process), text(row.user.map { userName($0) ?? "\($0)" }), text(program),
                (row.name.isEmpty ? "\"\"" : row.name.visible) + paths, text(row.token), text(row.kind?.rawValue),
                text(row.suspensions), text(row.deliveries), text(row.state),
            ])
        }
        return table
    }

    /// Returns the user's name from the system; `nil` if there is none.
    static func userName(_ user: UInt32) -> String? {
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16_384) { buffer in
            guard let start = buffer.baseAddress,
                getpwuid_r(user, &entry, start, buffer.count, &found) == 0, found != nil, let name = entry.pw_name
            else { return nil }
            return String(cString: name)
        }
    }
}
