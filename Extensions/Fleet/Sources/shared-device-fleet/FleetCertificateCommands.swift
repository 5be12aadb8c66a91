import ArgumentParser
import Basics
import CommandParts
import Cryptography
import DBus
import Fleet
import FoundationEssentials
import Glibc

// The commands that decide which devices belong to a fleet.

struct FleetAuthorityCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "authority",
        abstract: "Makes the authority that certifies a fleet's devices, controller and MQTT server.",
        discussion: """
            The folder stays with the administrator. An organisation that already has an authority uses that one \
            instead.
            Exit status, also of certify and revoke: 77 other users may read its key, or write into its folder.
            """
    )

    @Argument(help: "The folder, which is made.")
    var folder: String

    func execute() throws {
        try FleetAuthority.make(in: folder)
        warn("made \(folder)/authority.key, which stays here; authority.pem and authority.crl are for the MQTT server")
    }
}

struct FleetCertifyCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "certify",
        abstract: "Certifies a device, the controller or the MQTT server.",
        discussion: """
            With --request it reads the request of “fleet enrol”, and prints what the device needs. Without --request it makes a key in the \
            folder, too. The certificate has the name that is given here, and not the name in the request.
            """
    )

    @Argument(help: "The authority's folder.")
    var folder: String

    @Argument(help: "The name of the device or the controller; of the MQTT server, the host that clients connect to.")
    var name: String

    @Option(help: ArgumentHelp("The request, or - for standard input.", valueName: "file"))
    var request: String?

    @Flag(help: "For the MQTT server.")
    var server = false

    @Flag(help: "Lists the device with the controller, so that orders for all wait for it.")
    var add = false

    @Option(
        name: .customLong("group"),
        help: ArgumentHelp("With --add: a group; may be given several times.", valueName: "name")
    )
    var groups: [String] = []

    @OptionGroup var controller: FleetOptions

    func validate() throws {
        guard !server || !add else { throw ValidationError("--add is for devices, not for the MQTT server") }
        guard add || groups.isEmpty else { throw ValidationError("--group needs --add") }
    }

    func execute() throws {
        // Read the request first, because the authority is locked while it is open.
        let text = try request.map { try PEM.read("CERTIFICATE REQUEST", 1, from: $0)[0] }
        let authority = try FleetAuthority(folder: folder)
        let answer = try authority.certify(name, server ? .server : .client, request: text)
        // List the device before the certificate is given out: with it the device may report at once.
        if add { try controller.connect().list([name], groups: groups) }
        if request == nil {
            warn("wrote \(folder)/\(name).key and \(folder)/\(name).pem")
        } else {
            try emit(String(answer.dropLast()))
        }
        authority.warnOfEnds()
    }
}

extension FleetAuthority {
    private static let mostNamed = 5

    /// Warns of certificates that expire soon, including the MQTT server's, of which no device can warn.
    fileprivate func warnOfEnds() {
        let near: [Term]
        do throws(CommandFailure) {
            near = try terms().filter(\.isNear)
        } catch {
            return warn(error.description)
        }
        for term in near.prefix(Self.mostNamed) { warn("\(term.name): it \(term.words)".printable) }
        if near.count > Self.mostNamed {
            warn("and \(near.count - Self.mostNamed) more: “fleet certificates” lists them")
        }
    }
}

struct FleetCertificatesCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "certificates",
        abstract: "Lists an authority's certificates, and when they expire.",
        discussion: """
            The newest certificate of each name, the authority's own and its revocation list, sorted by expiry. To \
            renew: “fleet enrol” again on a device, “fleet certify --server” for the MQTT server, and “fleet revoke” \
            without a name for the list.
            Exit status: 0 all of them are valid for 30 days or more; 75 some are not; 66 the authority's own \
            files cannot be read.
            """
    )

    @Argument(help: "The authority's folder.")
    var folder: String

    @Flag(help: "As a JSON array, for programs.")
    var json = false

    func execute() throws {
        let terms = try FleetAuthority(folder: folder).terms()
        if json {
            try emit(Form.json(terms))
        } else {
            var table = Table("NAME", "ENDS", "")
            for term in terms {
                table.add([term.name, Form.time(term.end), term.words], term.isNear ? .yellow : nil)
            }
            try emit(table.lines.joined(separator: "\n"))
        }
        if terms.contains(where: \.isNear) { throw ExitCode(EX_TEMPFAIL) }
    }
}

struct FleetRevokeCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "revoke",
        abstract: "Revokes all certificates of a device, and renews the list that the MQTT server reads.",
        discussion: """
            Then copy authority.crl to the server, and restart the server. The list is valid for ten years, after \
            which the server refuses every device. Without a name, the command only renews the list.
            """
    )

    @Argument(help: "The authority's folder.")
    var folder: String

    @Argument(help: "The names in the certificates.")
    var names: [String] = []

    func execute() throws {
        let authority = try FleetAuthority(folder: folder)
        try authority.revoke(names)
        warn("wrote \(folder)/authority.crl; copy it to the MQTT server, and restart the server")
        authority.warnOfEnds()
    }
}

/// Keys and certificates as texts between lines of hyphens.
enum PEM {
    /// Reads `count` of these from a file or from standard input, whose writer need not close it.
    static func read(_ kind: String, _ count: Int, from file: String) throws(CommandFailure) -> [String] {
        let descriptor = file == "-" ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw CommandFailure(EX_NOINPUT, "\(file) cannot be read: \(String(cString: strerror(errno)))")
        }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4096)
        while bytes.count <= FleetAuthority.largest {
            let found = blocks(kind, in: String(decoding: bytes, as: UTF8.self))
            if found.count >= count { return Array(found.prefix(count)) }
            let length = Glibc.read(descriptor, &chunk, chunk.count)
            if length == 0 || length < 0 && errno != EINTR { break }
            bytes += chunk[..<max(0, length)]
        }
        throw CommandFailure(
            EX_DATAERR,
            "\(file == "-" ? "standard input" : file) has no \(count) × “\(kind)” in PEM; see “fleet enrol --help”"
        )
    }

    static func blocks(_ kind: String, in text: String) -> [String] {
        let (begin, end) = ("-----BEGIN \(kind)-----", "-----END \(kind)-----")
        var (found, current): ([String], [Substring]?) = ([], nil)
        for line in text.split(whereSeparator: \.isNewline) {
            if line == begin { current = [] }
            current?.append(line)
            guard line == end, let lines = current else { continue }
            found.append(lines.joined(separator: "\n") + "\n")
            current = nil
        }
        return found
    }
}
