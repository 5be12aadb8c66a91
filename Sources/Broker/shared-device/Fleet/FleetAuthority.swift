import DBusTransport
import DeviceConfiguration
import DeviceStorage
import Fleet
import FoundationEssentials
import Glibc
import SharedDevice

/// A fleet's own authority: a folder with its key, what it has certified, and what it has revoked. openssl(1) does the work: nobody writes it himself.
struct FleetAuthority {
    enum Kind: String {
        case client
        /// For the MQTT server, by the name that clients connect to.
        case server
    }

    /// The most that a request or a certificate may have, in bytes.
    static let largest = 64 << 10
    private static let days = 397
    /// The authority's own, and the revocation list's: a list that ends has the MQTT server refuse every device at once.
    private static let authorityDays = 3650

    let folder: String
    private let lock: CInt

    /// Opens the authority of this folder. Nobody else uses it until this process ends.
    ///
    /// - Throws: ``CommandFailure`` where there is none, or where others may read its key; `StoreError` where others may write into the folder.
    init(folder: String) throws {
        self.folder = try Self.absolute(folder)
        guard access(self.folder + "/authority.key", F_OK) == 0 else {
            throw CommandFailure(
                status: EX_NOINPUT,
                description: "\(folder) has no authority; make one with “fleet authority \(folder)”"
            )
        }
        // Others could put settings of theirs there, by which openssl signs, and runs.
        try PrivateFiles.checkDirectory(self.folder)
        if let objection = FleetFiles.objection(toKey: self.folder + "/authority.key") {
            throw CommandFailure(status: EX_NOPERM, description: objection)
        }
        lock = try Self.lock(self.folder)
    }

    /// Makes an authority in a folder that has none.
    ///
    /// - Throws: ``CommandFailure``; `StoreError` for a folder that cannot be made, or that others may write into: openssl would write the key to a
    ///   file of theirs.
    static func make(in folder: String) throws {
        try PrivateFiles.prepareDirectory(folder)
        let path = try absolute(folder)
        let key = path + "/authority.key"
        guard access(key, F_OK) != 0 else {
            throw CommandFailure(
                status: EX_CANTCREAT,
                description:
                    "\(folder) has an authority already; what it has certified would be worth nothing without it"
            )
        }
        let lock = try lock(path)
        defer { close(lock) }
        try write(settings, to: path + "/settings")
        try write("", to: path + "/index.txt")
        try write("1000\n", to: path + "/serial")
        let tool = OpenSSL(folder: path)
        try tool.makeKey(key + ".new")
        try tool.run(
            [
                "req", "-new", "-x509", "-key", key + ".new", "-subj", "/CN=fleet authority", "-days",
                "\(authorityDays)",
                "-config", path + "/settings", "-extensions", "authority", "-out", path + "/authority.pem",
            ]
        )
        // Last: without it there is no authority, and the next attempt begins anew.
        try tool.move(key + ".new", to: key)
        try FleetAuthority(folder: path, lock: lock).writeRevoked()
    }

    private init(folder: String, lock: CInt) {
        self.folder = folder
        self.lock = lock
    }

    // MARK: Certificates

    /// Certifies a name, for the key of a request, or else for a new key in this folder.
    ///
    /// - Returns: the certificate and the authority's own, in PEM.
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
                    status: EX_CANTCREAT,
                    description: "\(key) is there already; remove it for a new key, or certify a request for it"
                )
            }
            try tool.makeKey(key)
            try tool.request(name, key: key, settings: "\(folder)/settings", to: file)
        }
        // The name is what the administrator says, whatever the request calls itself.
        try tool.run(
            [
                "ca", "-batch", "-notext", "-config", "\(folder)/settings", "-extensions", kind.rawValue, "-subj",
                "/CN=\(name)", "-days", "\(Self.days)", "-in", file, "-out", certificate + ".new", "-outdir", issued,
            ]
        )
        try tool.move(certificate + ".new", to: certificate)
        return try text(certificate) + text(folder + "/authority.pem")
    }

    /// Revokes each certificate of these names that is in force, and renews the list that the MQTT server reads.
    ///
    /// - Throws: ``CommandFailure``, before anything is revoked, where a name has no certificate or a certificate is not there any more.
    func revoke(_ names: [String]) throws(CommandFailure) {
        var files: [String] = []
        for name in names {
            let serials = try serials(of: name)
            guard !serials.isEmpty else {
                throw CommandFailure(
                    status: EX_NOINPUT,
                    description: "\(folder) has no certificate of \(name) that is in force"
                )
            }
            for serial in serials { files.append(try file(of: serial, name)) }
        }
        let tool = OpenSSL(folder: folder)
        for file in files { try tool.run(["ca", "-config", "\(folder)/settings", "-revoke", file]) }
        try writeRevoked()
        // By openssl's own list: whoever reads of success relies on it.
        for name in names {
            let left = try serials(of: name)
            guard left.isEmpty else {
                throw CommandFailure(
                    status: EX_SOFTWARE,
                    description:
                        "\(name) is still certified: \(left.joined(separator: ", ")) in \(folder)/index.txt; revoke it again"
                )
            }
        }
    }

    /// In one step: a server that reads it meanwhile has the old list or the new one.
    private func writeRevoked() throws(CommandFailure) {
        let (tool, list) = (OpenSSL(folder: folder), folder + "/authority.crl")
        try tool.run(
            [
                "ca", "-config", "\(folder)/settings", "-gencrl", "-crldays", "\(Self.authorityDays)", "-out",
                list + ".new",
            ]
        )
        try tool.move(list + ".new", to: list)
    }

    /// A certificate, or the revocation list, and when it ends, in seconds since 1970.
    struct Term {
        let name: String
        let end: Double

        var words: String { CertificateTerm.words(end, now: Date().timeIntervalSince1970) }
        var isNear: Bool { CertificateTerm.isNear(end, now: Date().timeIntervalSince1970) }
    }

    /// The names of the authority's own files in lists of terms. No other name has a blank.
    private static let (ownName, listName) = ("the authority", "the revocation list")

    /// When the newest certificate of each name ends, and the authority's own, and its list; the first end first.
    func terms() throws(CommandFailure) -> [Term] {
        var ends: [String: Double] = [:]
        for line in try text(folder + "/index.txt").split(separator: "\n") {
            let fields = line.split(separator: "\t", omittingEmptySubsequences: false)
            // V: in force, or ended since; E: ended. R is revoked.
            guard fields.count == 6, fields[0] != "R", fields[5].hasPrefix("/CN="),
                let end = CertificateTerm.time(Array(fields[1].utf8))
            else { continue }
            let name = String(fields[5].dropFirst("/CN=".count))
            // The last line is the newest.
            ends[name] = end
        }
        for (name, file) in [(Self.ownName, "authority.pem"), (Self.listName, "authority.crl")] {
            if let end = CertificateTerm.end(inPEM: try text("\(folder)/\(file)").utf8) { ends[name] = end }
        }
        return ends.map(Term.init).sorted { ($0.end, $0.name) < ($1.end, $1.name) }
    }

    /// The numbers of the certificates of this name that were not revoked: a renewed one has several.
    private func serials(of name: String) throws(CommandFailure) -> [String] {
        try text(folder + "/index.txt").split(separator: "\n").compactMap { line in
            let fields = line.split(separator: "\t", omittingEmptySubsequences: false)
            guard fields.count == 6, fields[0] == "V", fields[5] == "/CN=\(name)" else { return nil }
            return String(fields[3])
        }
    }

    /// Where openssl keeps each certificate by its number. Not beside those that we keep by name: a name may be digits alone.
    private var issued: String { folder + "/issued" }

    /// Makes the folder of issued certificates, which authorities of older versions lack. They have them where the certificate of this name is about
    /// to be: one whose number is the name is put aside.
    private func makeIssued(beside name: String) throws(CommandFailure) {
        // Whatever the umask says.
        guard mkdir(issued, 0o700) == 0 ? chmod(issued, 0o700) == 0 : errno == EEXIST else {
            throw CommandFailure(
                status: EX_CANTCREAT,
                description: "\(issued) cannot be made: \(String(cString: strerror(errno)))"
            )
        }
        let (old, new) = ("\(folder)/\(name).pem", "\(issued)/\(name).pem")
        guard access(new, F_OK) != 0, serial(in: old) == name else { return }
        try OpenSSL(folder: folder).move(old, to: new)
    }

    /// Where the certificate of this number is. Authorities of older versions have it in the folder itself, where another name's may have taken its
    /// place: what counts is the number in the certificate.
    private func file(of serial: String, _ name: String) throws(CommandFailure) -> String {
        let places = ["\(issued)/\(serial).pem", "\(folder)/\(serial).pem", "\(folder)/\(name).pem"]
        if let file = places.first(where: { self.serial(in: $0) == serial }) { return file }
        throw CommandFailure(
            status: EX_NOINPUT,
            description:
                "certificate \(serial) of \(name) is not in \(folder), and nothing was revoked; copy it to \(places[0]) from where it is used"
        )
    }

    /// The number in a certificate; `nil` where the file is none.
    private func serial(in file: String) -> String? {
        guard access(file, F_OK) == 0,
            let text = try? OpenSSL(folder: folder).run(["x509", "-in", file, "-noout", "-serial"])
        else { return nil }
        let words = text.split(whereSeparator: \.isNewline)
        return words.count == 1 && words[0].hasPrefix("serial=") ? String(words[0].dropFirst("serial=".count)) : nil
    }

    private func check(_ name: String, _ kind: Kind) throws(CommandFailure) {
        let isHost =
            (1...253).contains(name.utf8.count) && name.first != "-"
            && name.split(separator: ".", omittingEmptySubsequences: false).allSatisfy {
                FleetTopics.isName(String($0))
            }
        guard name != "authority" else {
            throw CommandFailure(
                status: EX_DATAERR,
                description: "“authority” is the authority's own name: its certificate would be lost; choose another"
            )
        }
        guard kind == .server ? isHost : FleetTopics.isName(name) else {
            throw CommandFailure(
                status: EX_DATAERR,
                description: kind == .server
                    ? "\(name) is no name of a host; use small letters, digits, dashes and dots"
                    : "\(name) is no name; names have up to 64 small letters, digits and dashes"
            )
        }
    }

    /// By which names a server counts as this one.
    private static func names(_ host: String) -> String {
        let isAddress = host.utf8.allSatisfy { (0x30...0x39).contains($0) || $0 == UInt8(ascii: ".") }
        return isAddress ? "IP:\(host)" : host == "localhost" ? "DNS:localhost,IP:127.0.0.1" : "DNS:\(host)"
    }

    // MARK: Files

    private func text(_ path: String) throws(CommandFailure) -> String {
        do throws(FleetRefusal) {
            return String(decoding: try FleetFiles.read(path, atMost: 64 << 20) ?? [], as: UTF8.self)
        } catch {
            throw CommandFailure(status: EX_IOERR, description: error.description)
        }
    }

    private static func write(_ text: String, to path: String) throws(CommandFailure) {
        do {
            try AtomicFile(path: path).write(Data(text.utf8))
        } catch {
            throw CommandFailure(status: EX_CANTCREAT, description: "\(path) cannot be written: \(error)")
        }
        // What a umask may have taken from its owner, too.
        chmod(path, 0o600)
    }

    private static func absolute(_ folder: String) throws(CommandFailure) -> String {
        guard let path = realpath(folder, nil) else {
            throw CommandFailure(
                status: EX_NOINPUT,
                description: "\(folder): \(String(cString: strerror(errno))); make it with “fleet authority \(folder)”"
            )
        }
        defer { free(path) }
        return String(cString: path)
    }

    /// Two that write the list of certificates at once would lose one of theirs.
    private static func lock(_ folder: String) throws(CommandFailure) -> CInt {
        let descriptor = open(folder + "/lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else {
            throw CommandFailure(
                status: EX_CANTCREAT,
                description: "\(folder) cannot be written: \(String(cString: strerror(errno)))"
            )
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

/// openssl(1), which makes keys, requests and certificates.
struct OpenSSL {
    private let environment: [String: String]

    /// - Parameters:
    ///   - folder: what the authority's settings call its folder.
    ///   - names: the further names of a server's certificate.
    init(folder: String = "", names: String? = nil) {
        environment = ["FLEET_FOLDER": folder, "FLEET_NAMES": names ?? "DNS:localhost"]
    }

    /// Runs openssl under a umask of its own: it gives its files no other rights than those that the umask leaves, and a key must at no moment be
    /// readable by others. This process keeps its umask, by which it makes folders that others have to enter.
    ///
    /// - Returns: what it wrote.
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
                within: HelperProcess.Patience(.seconds(60))
            ) { output += $0.prefix(FleetAuthority.largest - output.count) }
        } catch {
            throw CommandFailure(status: EX_UNAVAILABLE, description: "\(error)")
        }
        let text = String(decoding: output, as: UTF8.self)
        // As sh(1) ends where there is no such program.
        if end.status == 127 {
            throw CommandFailure(
                status: EX_UNAVAILABLE,
                description: "openssl is not there: \(Terminal.printable(text)); install the package openssl"
            )
        }
        guard end.status == 0 else {
            let reason = text.split(separator: "\n").last { !$0.isEmpty } ?? "no reason"
            throw CommandFailure(
                status: EX_DATAERR,
                description: "openssl \(words[0]) has failed: \(Terminal.printable(String(reason)))"
            )
        }
        return text
    }

    /// A key of the curve P-256, for this user alone.
    func makeKey(_ path: String) throws(CommandFailure) {
        try run(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path])
    }

    /// A request to certify this name for the key.
    func request(_ name: String, key: String, settings: String, to path: String) throws(CommandFailure) {
        try run(["req", "-new", "-key", key, "-subj", "/CN=\(name)", "-config", settings, "-out", path])
    }

    func move(_ path: String, to other: String) throws(CommandFailure) {
        guard rename(path, other) != 0 else { return }
        throw CommandFailure(
            status: EX_CANTCREAT,
            description: "\(other) cannot be written: \(String(cString: strerror(errno)))"
        )
    }
}
