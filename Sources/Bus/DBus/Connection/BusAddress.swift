import Basics

/// The parts of a D-Bus address that matter here.
enum BusAddress {
    /// Whether libdbus starts a program to connect to the address, or to find the bus.
    static func startsProgram(_ address: String) -> Bool {
        address.contains("unixexec:") || address.contains("autolaunch:")
    }

    /// The address without the identifiers of its buses (`guid=`). Each run of a bus makes new ones, so with them a
    /// connection would not come back after a restart. They prove nothing, because the bus itself states its
    /// identifier.
    static func withoutIdentifiers(_ address: String) -> String {
        address.split(separator: ";", omittingEmptySubsequences: false).map { entry in
            guard let colon = entry.firstIndex(of: ":") else { return String(entry) }
            let pairs = entry[entry.index(after: colon)...].split(separator: ",").filter { !$0.hasPrefix("guid=") }
            return entry[...colon] + pairs.joined(separator: ",")
        }.joined(separator: ";")
    }

    /// Checks that this process may use the address.
    ///
    /// - Throws: ``DBusError/Code/invalidArgument`` for a NUL, and for an address that starts a program in a process
    ///   with more rights than its user: `autolaunch:` reads the caller's environment, and both kinds hand the
    ///   process's rights to another program.
    static func check(_ address: String, _ attempted: String) throws(DBusError) {
        guard !address.containsNUL else {
            throw DBusError(.invalidArgument, message: "the address holds U+0000", attempted: attempted)
        }
        guard ProcessEnvironment.isIgnored, startsProgram(address) else { return }
        throw DBusError(
            .invalidArgument,
            message: "a process with more rights than its user starts no program to reach a bus",
            attempted: attempted,
            remedy: "name the bus's socket, for instance unix:path=/run/my/bus"
        )
    }
}
