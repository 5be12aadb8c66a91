import ArgumentParser
import Basics
import CommandParts
import DBus
import DeviceConfiguration
import Fleet
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

struct FleetEnrolCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "enrol",
        abstract: "Makes this machine a device of a fleet, or its controller: key, certificate, configuration.",
        discussion: """
            Prints a request for a certificate, and then reads the response of “fleet certify --request” from standard \
            input or --certificate. The key never leaves the machine. If the command is run again, it renews the \
            certificate for the same key.
            Exit status: 0 enrolled; 65 the response is not for this key and name, or from another authority than \
            before; 77 other users may read the key.
            """
    )

    @Argument(help: "The name, which no other device of the fleet has.")
    var name: String

    @Option(help: ArgumentHelp("The fleet, as in the MQTT server's access list.", valueName: "name"))
    var fleet: String

    @Option(help: ArgumentHelp("The MQTT server, as in its certificate.", valueName: "name"))
    var host: String

    @Option(help: ArgumentHelp("The MQTT server's port.", valueName: "number"))
    var port: UInt16 = 8883

    @Option(
        help: ArgumentHelp(
            "How long the device may lack contact with the controller before it signs out.",
            valueName: "seconds"
        )
    )
    var contactTimeout: UInt64?

    @Flag(help: "With --contact-timeout: no user stays signed in until the device hears from the controller.")
    var requiresContact = false

    @Flag(help: "For the controller, not for a device.")
    var controller = false

    @Option(help: ArgumentHelp("The response of “fleet certify”; - is standard input.", valueName: "file"))
    var certificate: String = "-"

    @Flag(help: "Ends with the request; the same with --certificate does the rest.")
    var requestOnly = false

    @Flag(help: "Enables and starts the unit.")
    var start = false

    @Option(help: ArgumentHelp("Where the configuration is.", valueName: "dir"))
    var directory: String = "/etc/shared-device"

    private var role: String { controller ? "controller" : "agent" }
    private var folder: String { "\(directory)/fleet" }
    private var key: String { "\(folder)/\(name).key" }

    func validate() throws {
        guard !controller || contactTimeout == nil && !requiresContact else {
            throw ValidationError("a controller has no limit of time without contact")
        }
        guard name != "authority" else {
            throw ValidationError("“authority” is no name of a device: its certificate would replace the authority's")
        }
        // The MQTT server lets the client “controller” give orders, so a device must not have that name.
        guard controller || name != "controller" else {
            throw ValidationError(
                "“controller” is no name of a device: it may give orders to all devices; add --controller"
            )
        }
        guard directory.hasPrefix("/") else { throw ValidationError("--directory needs an absolute path") }
    }

    func execute() throws {
        let content = try content()
        let owner = try owner()
        try makeFolder()
        try makeKey(for: owner)
        let request = try request()
        try emit(String(request.dropLast()))
        if requestOnly { return warn("the request is for “fleet certify FOLDER \(name) --request FILE”") }
        let answer = try PEM.read("CERTIFICATE", 2, from: certificate)
        try install(certificate: answer[0], authority: answer[1])
        let file = "\(directory)/fleet-\(role).json"
        try replaceFile(file, by: content)
        warn("enrolled: \(file)")
        try startUnit()
    }

    /// The configuration, validated as the agent does.
    private func content() throws -> String {
        var members: [String: JSONValue] = [
            "fleet": .string(fleet), "name": .string(name), "host": .string(host), "port": .number(port),
            "authority": .string("\(folder)/authority.pem"), "certificate": .string("\(folder)/\(name).pem"),
            "key": .string(key),
        ]
        members["contactTimeout"] = contactTimeout.map { .number($0) }
        if requiresContact { members["requiresContact"] = .boolean(true) }
        let content = try Form.json(members)
        do throws(FleetRefusal) {
            _ = try FleetConfiguration(parsing: Array(content.utf8))
        } catch {
            throw CommandFailure(EX_DATAERR, error.description)
        }
        return content + "\n"
    }

    // MARK: The key

    /// The user that the unit runs as, if root enrols; otherwise this user.
    private func owner() throws -> SystemUser {
        let own = try SystemUser(number: geteuid())
        guard own.number == 0 else { return own }
        if let user = try SystemUser(name: "shared-device-\(role)") { return user }
        warn(
            "there is no user shared-device-\(role), so the key belongs to root; install the package shared-device-fleet"
        )
        return own
    }

    private func makeFolder() throws(CommandFailure) {
        for path in [directory, folder] {
            // Independent of root's umask: agent and controller have to reach their keys.
            if mkdir(path, 0o755) == 0 ? chmod(path, 0o755) == 0 : errno == EEXIST { continue }
            throw CommandFailure(
                errno == EACCES ? EX_NOPERM : EX_CANTCREAT,
                "cannot make \(path): \(String(cString: strerror(errno))); run it as root, or name --directory"
            )
        }
    }

    private func makeKey(for owner: SystemUser) throws(CommandFailure) {
        if access(key, F_OK) == 0 {
            guard let objection = FleetFiles.objection(toKey: key, owner: owner.number) else { return }
            // A user who has read the key can impersonate this device; restricting the file now does not help.
            throw CommandFailure(EX_NOPERM, "\(objection), or remove it for a new key")
        }
        let tool = OpenSSL()
        try tool.makeKey(key + ".new")
        guard chown(key + ".new", owner.number, owner.group) == 0 else {
            throw CommandFailure(EX_NOPERM, "\(key) cannot be given to its user: \(String(cString: strerror(errno)))")
        }
        try tool.move(key + ".new", to: key)
    }

    private func request() throws -> String {
        // openssl requires a file of settings, even an empty one.
        let (settings, file) = ("\(folder)/\(name).settings", "\(folder)/\(name).csr")
        defer {
            unlink(settings)
            unlink(file)
        }
        try replaceFile(settings, by: "[req]\ndistinguished_name = any\n[any]\n")
        try OpenSSL().request(name, key: key, settings: settings, to: file)
        return try PEM.read("CERTIFICATE REQUEST", 1, from: file)[0]
    }

    // MARK: The certificate

    private func install(certificate: String, authority: String) throws {
        let (place, authorityPlace) = ("\(folder)/\(name).pem", "\(folder)/authority.pem")
        let (new, newAuthority) = (place + ".new", authorityPlace + ".new")
        defer {
            unlink(new)
            unlink(newAuthority)
        }
        try replaceFile(new, by: certificate)
        try replaceFile(newAuthority, by: authority)
        let tool = OpenSSL()
        let known = try FleetFiles.read(authorityPlace, atMost: FleetAuthority.largest)
        guard known == nil || known == Array(authority.utf8) else {
            throw CommandFailure(
                EX_DATAERR,
                "it is from another authority than \(authorityPlace); remove that file if the fleet has a new one"
            )
        }
        // Without the system's authorities: only the fleet's own counts.
        try tool.run(["verify", "-purpose", "sslclient", "-CAfile", newAuthority, "-no-CApath", "-no-CAstore", new])
        let subject = try tool.run(["x509", "-in", new, "-noout", "-subject", "-nameopt", "RFC2253"])
        guard subject.split(whereSeparator: \.isNewline) == ["subject=CN=\(name)"] else {
            throw CommandFailure(
                EX_DATAERR,
                "the certificate is for another name (\(subject.printable)); certify \(name)"
            )
        }
        let certified = try tool.run(["x509", "-in", new, "-noout", "-pubkey"])
        guard try tool.run(["pkey", "-in", key, "-pubout"]) == certified else {
            throw CommandFailure(
                EX_DATAERR,
                "the certificate is for another key; certify the request that was printed here"
            )
        }
        try tool.move(newAuthority, to: authorityPlace)
        try tool.move(new, to: place)
    }

    private func startUnit() throws(CommandFailure) {
        let unit = "shared-device-\(role)"
        if !controller {
            warn(
                "let the agent see and sign out, in the managed configuration: \"operators\": [\"shared-device-agent\"]"
            )
        }
        guard start else { return warn("then: systemctl enable --now \(unit)") }
        do throws(HelperProcess.Failure) {
            var settings = HelperProcess.Settings()
            settings.errors = .inherited
            let status = try HelperProcess("systemctl", ["enable", "--now", unit], settings).end()
            guard status == 0 else { throw HelperProcess.Failure("systemctl ended with status \(status ?? -1)") }
        } catch {
            throw CommandFailure(EX_UNAVAILABLE, "\(unit) is not started: \(error)")
        }
    }
}
