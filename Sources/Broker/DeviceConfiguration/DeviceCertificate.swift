public import Basics
import Cryptography

/// A file of certificates whose end would stop a function of this device.
public struct DeviceCertificate: Sendable, Hashable {
    public enum Use: String, Sendable, Encodable {
        /// The authorities that the device trusts for the organisation's provider: `oidcTrustAnchors`.
        case provider
        /// The certificate of the fleet's agent, and the authority of the fleet.
        case fleetAgent, fleetAuthority
    }

    public let use: Use
    /// The path of the file.
    public let file: String
    /// When the first certificate in the file ends, in seconds since 1970; or why that is unknown.
    public let end: Result<Double, Problem>

    public init(_ use: Use, file: String, end: Result<Double, Problem>) {
        (self.use, self.file, self.end) = (use, file, end)
    }

    /// When it ends, in a sentence. The time is in seconds since 1970.
    public func words(now: Double) -> String {
        switch end {
        case .success(let end): "\(use.name) (\(file)) \(CertificateTerm.words(end, now: now))"
        case .failure(let problem): "\(use.name): \(problem)"
        }
    }

    /// The warning for an administrator; `nil` if it is known to end later.
    public func warning(now: Double) -> String? {
        switch end {
        case .success(let end): CertificateTerm.isNear(end, now: now) ? "\(words(now: now)); \(use.remedy)" : nil
        case .failure: words(now: now)
        }
    }

    /// The remaining whole days, negative after the end; `nil` if the end is unknown.
    public func days(now: Double) -> Int? { (try? end.get()).map { CertificateTerm.days(until: $0, now: now) } }

    /// Reads the files that this device uses. Blocks the thread on the file system.
    ///
    /// - Parameter directory: The directory of the configurations of the device and of the fleet's agent.
    public static func all(trustAnchors: String?, directory: String) -> [DeviceCertificate] {
        (trustAnchors.map { [DeviceCertificate(reading: $0, for: .provider)] } ?? [])
            + ofFleet("\(directory)/fleet-agent.json")
    }

    private init(reading path: String, for use: Use) {
        // No file has a longer path.
        let file = String(path.prefix(4096))
        let end = Result { () throws(CertificateFileError) in try CertificateTerm.end(ofFile: file) }
        self.init(use, file: file, end: end.mapError { Problem($0.description) })
    }

    /// The agent's certificates; none if the device is in no fleet.
    private static func ofFleet(_ configuration: String) -> [DeviceCertificate] {
        func unknown(_ problem: String) -> [DeviceCertificate] {
            [DeviceCertificate(.fleetAgent, file: configuration, end: .failure(Problem(problem)))]
        }
        let decides = "which certificates the fleet's agent uses"
        do throws(ManagedConfigurationError) {
            let file = AdministratorFile(path: configuration, maximumSize: 64 << 10, decides: decides)
            guard let content = try file.read() else { return [] }
            let members = try? JSONValue(parsing: Array(content), limits: JSONLimits(size: 64 << 10, depth: 2))
            return [("certificate", Use.fleetAgent), ("authority", .fleetAuthority)].flatMap { key, use in
                members?[key]?.string.map { [DeviceCertificate(reading: $0, for: use)] }
                    ?? unknown("\(configuration) has no text “\(key)”; enrol the device again")
            }
        } catch {
            return unknown(error.description)
        }
    }
}

extension DeviceCertificate.Use {
    fileprivate var name: String {
        switch self {
        case .provider: "the provider's authority"
        case .fleetAgent: "the fleet agent's certificate"
        case .fleetAuthority: "the fleet's authority"
        }
    }

    fileprivate var remedy: String {
        switch self {
        case .provider:
            "if the provider's certificate is from it, people cannot sign in; put the new authority there, and remove this one"
        case .fleetAgent: "without it the fleet cannot reach this device; enrol the device again"
        case .fleetAuthority: "without it the fleet cannot reach its devices; enrol them with a new authority"
        }
    }
}
