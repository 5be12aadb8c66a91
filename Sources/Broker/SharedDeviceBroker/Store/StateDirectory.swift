/// Where the broker and its administration keep the device's state, unless told otherwise.
package enum StateDirectory {
    /// The variable that names the directory.
    package static let environmentVariable = "SHARED_DEVICE_STATE"

    /// The directory for a user of this id with these variables: `SHARED_DEVICE_STATE`; else `/var/lib/shared-device` for
    /// root; else `shared-device` in `XDG_STATE_HOME`, or in `~/.local/state` where that is unset or relative, which the
    /// XDG rules declare invalid.
    package static func path(environment: [String: String], effectiveUser: UInt32, home: String) -> String {
        if let path = environment[environmentVariable], !path.isEmpty { return path }
        if effectiveUser == 0 { return "/var/lib/shared-device" }
        if let base = environment["XDG_STATE_HOME"], base.hasPrefix("/") { return base + "/shared-device" }
        return home + "/.local/state/shared-device"
    }
}
