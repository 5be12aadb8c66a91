package import Cryptography

extension CertificateTerm {
    /// The earlier end of a program's certificate and its authority's, in seconds since 1970. Reads both files.
    package static func end(of configuration: FleetConfiguration) -> Result<Double, CertificateFileError> {
        Result { () throws(CertificateFileError) in
            min(try end(ofFile: configuration.certificate), try end(ofFile: configuration.authority))
        }
    }

    /// The warning about a program's own certificate, early, because the server accepts nothing after the end. `nil` if
    /// it ends later, or without a configuration.
    ///
    /// - Parameter words: the certificate's name, and the remedy.
    package static func warning(
        _ end: Result<Double, CertificateFileError>?,
        _ words: (name: String, remedy: String),
        now: Double
    ) -> String? {
        switch end {
        case .failure(let error)?: error.description
        case .success(let end)? where isNear(end, now: now):
            "\(words.name) \(Self.words(end, now: now)); \(words.remedy)"
        case .success?, nil: nil
        }
    }
}

/// The reported ends of a fleet's certificates. Past ends count separately, so that they do not hide the next end.
package struct CertificateEnds: Sendable {
    /// The next end, in seconds since 1970.
    package private(set) var next: Double?
    /// The number that end within ``CertificateTerm/warningDays``.
    package private(set) var near: UInt64 = 0
    package private(set) var ended: UInt64 = 0

    package init() {}

    package mutating func add(_ end: Double, now: Double) {
        guard end > now else {
            ended += 1
            return
        }
        next = min(next ?? end, end)
        if CertificateTerm.isNear(end, now: now) { near += 1 }
    }

    /// The warning for an operator; `nil` if no certificate ends soon.
    package func warning(now: Double) -> String? {
        var parts: [String] = []
        if ended > 0 { parts.append("certificates of \(Self.devices(ended)) have ended") }
        if near > 0, let next {
            parts.append(
                "certificates of \(Self.devices(near)) end within \(CertificateTerm.warningDays) days, and the first "
                    + CertificateTerm.words(next, now: now)
            )
        }
        return parts.isEmpty ? nil : parts.joined(separator: ", ") + "; enrol them again"
    }

    private static func devices(_ count: UInt64) -> String { count == 1 ? "1 device" : "\(count) devices" }
}
