import Testing

@testable import DBus

@Suite("The text of errors")
struct DBusErrorTests {
    @Test(
        "an error of the bus includes a remedy",
        arguments: [
            ("LimitsExceeded", .limitsExceeded, "raise the limit"),
            ("AccessDenied", .refused, "policy"),
            ("ServiceUnknown", .refused, "start the service"),
            ("Spawn.ExecFailed", .refused, "log"),
            ("NoReply", .timedOut, "try again"),
        ] as [(String, DBusError.Code, String)]
    )
    func answer(_ name: String, _ code: DBusError.Code, _ remedy: String) {
        let name = "org.freedesktop.DBus.Error.\(name)"
        let error = DBusError.answer(name: name, message: "no", details: [:], attempted: "post")
        #expect(error.code == code && error.name == name)
        #expect(error.remedy?.contains(remedy) == true)
        #expect(error.description.hasPrefix("could not post: no [\(name)]; "))
    }

    @Test("a limit of the process is distinguished from a limit of the bus")
    func limitsOfConnecting() {
        let name = "org.freedesktop.DBus.Error.LimitsExceeded"
        let error = DBusError.notOpened("Too many open files", name: name, "connect to the bus")
        #expect(error.code == .noResources && error.remedy?.contains("ulimit -n") == true)
        let full = DBusError.noBus(
            "The maximum number of connections has been reached",
            name: name,
            "connect to the bus"
        )
        #expect(full.code == .noBus && full.remedy?.contains("max_connections_per_user") == true)
        #expect(DBusError.notOpened("No such file", name: nil, "connect to the bus").code == .noBus)
    }
}
