import Basics
public import CommandParts
import Cryptography
import DBus
import DeviceConfiguration
public import DeviceStorage
import Fleet
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

/// A fleet's own certificate authority: a folder with its key, certificates and revocation list, made by openssl(1).
struct FleetAuthority {
    enum Kind: String {
        case client
        /// The MQTT server, certified under the name that clients connect to.
        case server
    }

    /// The maximum size of a request or a certificate, in bytes.
    static let largest = 64 << 10
    private static let days = 397
    /// The lifetime of the authority and of the revocation list. With an expired list, the server refuses every device.
    private static let authorityDays = 3650

    let folder: String
    private let lock: CInt

    /// Opens the authority in this folder and locks it until this process ends. Throws ``CommandFailure`` if other
    /// users may read its key, and `StoreError` if they may write into the folder.
    init(folder: String) throws {
        self.folder = try Self.absolute(folder)
        guard access(self.folder + "/authority.key", F_OK) == 0 else {
            throw CommandFailure(EX_NOINPUT, "\(folder) has no authority; make one with “fleet authority \(folder)”")
        }
        // Another user could put settings there that make openssl sign or run anything.
        try PrivateFiles.checkDirectory(self.folder)
        if let objection = FleetFiles.objection(toKey: self.folder + "/authority.key") {
            throw CommandFailure(EX_NOPERM, objection)
        }
        lock = try Self.lock(self.folder)
    }

    /// Creates an authority in a folder that has none. Throws `StoreError` if other users may write into the folder:
    /// they could make openssl write the key to their file.
    static func make(in folder: String) throws {
        try PrivateFiles.prepareDirectory(folder)
        let path = try absolute(folder)
        let key = path + "/authority.key"
        guard access(key, F_OK) != 0 else {
            throw CommandFailure(
                EX_CANTCREAT,
                "\(folder) has an authority already; a new authority would make its certificates worthless"
            )
        }
        let lock = try lock(path)
        defer { close(lock) }
        try write(settings, to: path + "/settings")
        try write("", to: path + "/index.txt")
        try write("1000\n", to: path + "/serial")
        let tool = OpenSSL(folder: path)
        try tool.makeKey(key + ".new")
        try tool.run([
            "req", "-new", "-x509", "-key", key + ".new", "-subj", "/CN=fleet authority", "-days", "\(authorityDays)",
            "-config", path + "/settings", "-extensions", "authority", "-out", path + "/authority.pem",
        ])
        // Last: until the key exists there is no authority, and another attempt starts over.
        try tool.move(key + ".new", to: key)
        try FleetAuthority(folder: path, lock: lock).writeRevoked()
    }

    private init(folder: String, lock: CInt) {
        self.folder = folder
        self.lock = lock
    }

    // MARK: Certificates

    /// Certifies a name, for the key in a request or a new key. Returns the certificate and the authority's, in PEM.
    func certify(_ name: String, _ kind: Kind, request: String?) throws(CommandFailure) -> String {
        try check(name, kind)
        try makeIssued(beside: name)
        let (file, certificate) = ("\(folder)/\(name).csr", "\(folder)/\(name).pem")
        let tool = OpenSSL(folder: folder, names: kind == .server ? Self.names(name) : nil)
        defer { unlink(file) }
        if let request {
            try Self.write(request, to: file)
        } else {
            let key = "\(folder)/\(name).key"
            guard access(key, F_OK) != 0 else {
                throw CommandFailure(
                    EX_CANTCREAT,
                    "\(key) is there already; remove it for a new key, or certify a request for it"
                )
            }
            try tool.makeKey(key)
            try tool.request(name, key: key, settings: "\(folder)/settings", to: file)
        }
        // The administrator's name replaces the one in the request.
        try tool.run([
            "ca", "-batch", "-notext", "-config", "\(folder)/settings", "-extensions", kind.rawValue, "-subj",
            "/CN=\(name)", "-days", "\(Self.days)", "-in", file, "-out", certificate + ".new", "-outdir", issued,
        ])
        try tool.move(certificate + ".new", to: certificate)
        return try text(certificate) + text(folder + "/authority.pem")
    }

    /// Revokes all valid certificates of these names, and renews the list that the MQTT server reads. Throws before
    /// anything is revoked if a name has no certificate or a certificate's file is missing.
    func revoke(_ names: [String]) throws(CommandFailure) {
        var files: [String] = []
        for name in names {
            let serials = try serials(of: name)
            guard !serials.isEmpty else {
                throw CommandFailure(EX_NOINPUT, "\(folder) has no certificate of \(name) that is in force")
            }
            for serial in serials { files.append(try file(of: serial, name)) }
        }
        let tool = OpenSSL(folder: folder)
        for file in files { try tool.run(["ca", "-config", "\(folder)/settings", "-revoke", file]) }
        try writeRevoked()
        // Verify with openssl's own list, because administrators rely on a reported success.
        for name in names {
            let left = try serials(of: name)
            guard left.isEmpty else {
                throw CommandFailure(
                    EX_SOFTWARE,
                    "\(name) is still certified: \(left.joined(separator: ", ")) in \(folder)/index.txt; revoke it again"
                )
            }
        }
    }

    /// Replaces the list atomically, so that the server reads the old or the new one.
    private func writeRevoked() throws(CommandFailure) {
        let (tool, list) = (OpenSSL(folder: folder), folder + "/authority.crl")
        let days = "\(Self.authorityDays)"
        try tool.run(["ca", "-config", "\(folder)/settings", "-gencrl", "-crldays", days, "-out", list + ".new"])
        try tool.move(list + ".new", to: list)
    }

    /// The end of a certificate or of the revocation list. The property names are the keys of the command's JSON.
    struct Term: Encodable {
        let name: String
        let end: Date
        /// The days until then.
        let days: Int

        /// - Parameter end: in seconds since 1970.
        init(name: String, end: Double) {
            (self.name, self.end) = (name, Date(timeIntervalSince1970: end))
            days = CertificateTerm.days(until: end, now: Date().timeIntervalSince1970)
        }

        var words: String { CertificateTerm.words(end.timeIntervalSince1970, now: Date().timeIntervalSince1970) }
        var isNear: Bool { days < CertificateTerm.warningDays }
    }

    /// The names of the authority's own files in lists of terms. No other name contains a blank.
    private static let (ownName, listName) = ("the authority", "the revocation list")

    /// The terms of the newest certificate of each name, of the authority and of its list, by time of expiry.
    func terms() throws(CommandFailure) -> [Term] {
        var ends: [String: Double] = [:]
        // Later entries are newer.
        for entry in try entries() where entry.state != "R" {
            if let end = CertificateTerm.time(Array(entry.end.utf8)) { ends[entry.name] = end }
        }
        for (name, file) in [(Self.ownName, "authority.pem"), (Self.listName, "authority.crl")] {
            do throws(CertificateFileError) {
                ends[name] = try CertificateTerm.end(ofFile: "\(folder)/\(file)")
            } catch {
                throw CommandFailure(EX_NOINPUT, error.description)
            }
        }
        return ends.map(Term.init).sorted { ($0.end, $0.name) < ($1.end, $1.name) }
    }

    /// The serial numbers of this name's certificates that are not revoked. A renewed name has several.
    private func serials(of name: String) throws(CommandFailure) -> [String] {
        try entries().filter { $0.state == "V" && $0.name == name }.map(\.serial)
    }

    /// openssl's list of certificates. The states are V: valid, or expired since; E: expired; R: revoked.
    private func entries() throws(CommandFailure) -> [(state: Substring, end: Substring, serial: String, name: String)]
    {
        try text(folder + "/index.txt").split(separator: "\n").compactMap { line in
            let fields = line.split(separator: "\t", omittingEmptySubsequences: false)
            guard fields.count == 6, fields[5].hasPrefix("/CN=") else { return nil }
            return (fields[0], fields[1], String(fields[3]), String(fields[5].dropFirst("/CN=".count)))
        }
    }

    /// The folder of the certificates by number. It is separate, because a name may consist of digits.
    private var issued: String { folder + "/issued" }

    /// Creates the folder of issued certificates, which authorities of older versions lack. Those versions stored
    /// certificates by number where the certificate of `name` is about to be written. If that file is the certificate
    /// with this number, it is moved away.
    private func makeIssued(beside name: String) throws(CommandFailure) {
        // Independent of the umask.
        guard mkdir(issued, 0o700) == 0 ? chmod(issued, 0o700) == 0 : errno == EEXIST else {
            throw CommandFailure(EX_CANTCREAT, "\(issued) cannot be made: \(String(cString: strerror(errno)))")
        }
        let (old, new) = ("\(folder)/\(name).pem", "\(issued)/\(name).pem")
        guard access(new, F_OK) != 0, serial(in: old) == name else { return }
        try OpenSSL(folder: folder).move(old, to: new)
    }

    /// The file of the certificate with this number. Authorities of older versions stored it in the folder itself,
    /// where the certificate of another name may have replaced it. The number in the certificate therefore decides.
    private func file(of serial: String, _ name: String) throws(CommandFailure) -> String {
        let places = ["\(issued)/\(serial).pem", "\(folder)/\(serial).pem", "\(folder)/\(name).pem"]
        if let file = places.first(where: { self.serial(in: $0) == serial }) { return file }
        throw CommandFailure(
            EX_NOINPUT,
            "certificate \(serial) of \(name) is not in \(folder), and nothing was revoked; copy it to \(places[0]) from where it is used"
        )
    }

    /// The number in a certificate; `nil` if the file is not a certificate.
    private func serial(in file: String) -> String? {
        guard access(file, F_OK) == 0,
            let text = try? OpenSSL(folder: folder).run(["x509", "-in", file, "-noout", "-serial"])
        else { return nil }
        let words = text.split(whereSeparator: \.isNewline)
        return words.count == 1 && words[0].hasPrefix("serial=") ? String(words[0].dropFirst("serial=".count)) : nil
    }

    private func check(_ name: String, _ kind: Kind) throws(CommandFailure) {
        let labels = name.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        let isHost = name.utf8.count <= 253 && name.first != "-" && labels.allSatisfy(FleetTopics.isName)
        let problem: String? =
            if name == "authority" {
                "“authority” is the authority's own name: its certificate would be lost; choose another"
            } else if kind == .server {
                isHost ? nil : "\(name) is no name of a host; use small letters, digits, dashes and dots"
            } else {
                FleetTopics.isName(name)
                    ? nil : "\(name) is no name; names have up to 64 small letters, digits and dashes"
            }
        if let problem { throw CommandFailure(EX_DATAERR, problem) }
    }

    /// The alternative names in a server's certificate.
    private static func names(_ host: String) -> String {
        let isAddress = host.utf8.allSatisfy { (0x30...0x39).contains($0) || $0 == UInt8(ascii: ".") }
        return isAddress ? "IP:\(host)" : host == "localhost" ? "DNS:localhost,IP:127.0.0.1" : "DNS:\(host)"
    }

    // MARK: Files

    private func text(_ path: String) throws(CommandFailure) -> String {
        do throws(FleetRefusal) {
            return String(decoding: try FleetFiles.read(path, atMost: 64 << 20) ?? [], as: UTF8.self)
        } catch {
            throw CommandFailure(EX_IOERR, error.description)
        }
    }

    private static func write(_ text: String, to path: String) throws(CommandFailure) {
        do {
            try AtomicFile(path: path).write(text.utf8)
        } catch {
            throw CommandFailure(EX_CANTCREAT, "\(path) cannot be written: \(error)")
        }
    }

    private static func absolute(_ folder: String) throws(CommandFailure) -> String {
        guard let path = realpath(folder, nil) else {
            throw CommandFailure(
                EX_NOINPUT,
                "\(folder): \(String(cString: strerror(errno))); make it with “fleet authority \(folder)”"
            )
        }
        defer { free(path) }
        return String(cString: path)
    }

    /// Locks the folder: two processes that write the list of certificates at once would lose an entry.
    private static func lock(_ folder: String) throws(CommandFailure) -> CInt {
        let descriptor = open(folder + "/lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else {
            throw CommandFailure(EX_CANTCREAT, "\(folder) cannot be written: \(String(cString: strerror(errno)))")
        }
        fchmod(descriptor, 0o600)
        while flock(descriptor, LOCK_EX) != 0, errno == EINTR {}
        return descriptor
    }

    private static let settings = """
        [ca]
        default_ca = fleet
        [fleet]
        new_certs_dir = $ENV::FLEET_FOLDER/issued
        database = $ENV::FLEET_FOLDER/index.txt
        serial = $ENV::FLEET_FOLDER/serial
        certificate = $ENV::FLEET_FOLDER/authority.pem
        private_key = $ENV::FLEET_FOLDER/authority.key
        default_md = sha256
        unique_subject = no
        policy = any
        [any]
        commonName = supplied
        [req]
        distinguished_name = any
        [authority]
        basicConstraints = critical,CA:true,pathlen:0
        keyUsage = critical,keyCertSign,cRLSign
        subjectKeyIdentifier = hash
        [server]
        extendedKeyUsage = serverAuth
        keyUsage = critical,digitalSignature
        subjectAltName = $ENV::FLEET_NAMES
        [client]
        extendedKeyUsage = clientAuth
        keyUsage = critical,digitalSignature

        """
}

struct OpenSSL {
    private let environment: [String: String]

    /// The arguments are for the authority's settings: its folder, and the alternative names of a server's certificate.
    init(folder: String = "", names: String? = nil) {
        environment = ["FLEET_FOLDER": folder, "FLEET_NAMES": names ?? "DNS:localhost"]
    }

    /// Runs openssl, and returns its output. The umask is strict, because other users must never be able to read a key.
    /// This process keeps its own umask, because other users have to enter the folders that it creates.
    @discardableResult
    func run(_ words: [String]) throws(CommandFailure) -> String {
        var settings = HelperProcess.Settings()
        settings.environment.merge(environment) { $1 }
        var output: [UInt8] = []
        let end: HelperProcess.End
        do throws(HelperProcess.Failure) {
            end = try HelperProcess.runToEnd(
                "sh",
                ["-c", "umask 077; exec openssl \"$@\"", "openssl"] + words,
                settings,
                withErrors: true,
                patience: .seconds(60)
            ) { output += $0.prefix(FleetAuthority.largest - output.count) }
        } catch {
            throw CommandFailure(EX_UNAVAILABLE, "\(error)")
        }
        let text = String(decoding: output, as: UTF8.self)
        // The status of sh(1) for a missing program.
        if end.status == 127 {
            throw CommandFailure(EX_UNAVAILABLE, "openssl is not there: \(text.printable); install the package openssl")
        }
        guard end.status == 0 else {
            let reason = text.split(separator: "\n").last { !$0.isEmpty } ?? "no reason"
            throw CommandFailure(EX_DATAERR, "openssl \(words[0]) has failed: \(String(reason).printable)")
        }
        return text
    }

    /// Creates a key of the curve P-256 that only this user may read.
    func makeKey(_ path: String) throws(CommandFailure) {
        try run(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path])
    }

    func request(_ name: String, key: String, settings: String, to path: String) throws(CommandFailure) {
        try run(["req", "-new", "-key", key, "-subj", "/CN=\(name)", "-config", settings, "-out", path])
    }

    func move(_ path: String, to other: String) throws(CommandFailure) {
        guard rename(path, other) != 0 else { return }
        throw CommandFailure(EX_CANTCREAT, "\(other) cannot be written: \(String(cString: strerror(errno)))")
    }
}

extension StoreError: @retroactive HasExitStatus {}
