@_spi(Extensions) import SharedDevice
@_spi(Extensions) public import SharedDeviceTestKit

/// Claims that a demonstration tested, with the evidence.
public struct Proof: Sendable {
    /// The results of a search, for each directory by name.
    public typealias Results = [(name: String, result: ByteSearch.Result)]

    public struct Claim: Sendable, Codable {
        public let holds: Bool
        public let text: String
        public let evidence: [String]
    }

    public private(set) var claims: [Claim] = []
    /// The amount of data read by the searches that should find nothing.
    private var searched = (files: 0, bytes: 0)

    public init() {}

    public var holds: Bool { claims.allSatisfy(\.holds) }

    public mutating func add(_ text: String, holds: Bool, evidence: [String] = []) {
        claims.append(Claim(holds: holds, text: text, evidence: evidence))
    }

    /// Claims that the broker has the receipts of this many apps.
    public mutating func add(_ receipts: Receipts, ofApps count: Int) {
        let report = receipts.report
        add(
            "\(receipts.title): the broker has the receipts of all \(count) apps",
            holds: report.isComplete && report.apps.count == count
                && report.apps.allSatisfy { $0.progress == .finished }
        )
    }

    /// Claims that each directory contains every marker. Without this, a later search that finds nothing would prove
    /// nothing.
    public mutating func addPresence(_ text: String, of markers: [Marker], in results: Results) {
        let isThere = results.allSatisfy { entry in markers.allSatisfy { entry.result.contains($0) } }
        add(text, holds: isThere && !results.isEmpty, evidence: results.map(Self.summary))
    }

    /// Claims that no directory contains any of the markers.
    ///
    /// - Parameter listsFiles: Whether the evidence names every file that was searched.
    public mutating func addAbsence(_ text: String, in results: Results, listsFiles: Bool = false) {
        let evidence = results.flatMap { entry in
            [Self.summary(entry)] + (listsFiles ? entry.result.files.map { "    \($0.path), \($0.bytes) bytes" } : [])
                + entry.result.findings.map { finding in
                    let place = finding.offset.map { "at byte \($0)" } ?? "in the name"
                    return "    FOUND the \(finding.marker) (\(finding.encoding)) \(place) of \(finding.path)"
                }
        }
        for (_, result) in results {
            searched.files += result.files.count
            searched.bytes += result.bytes
        }
        let isClean = results.allSatisfy { $0.result.findings.isEmpty }
        add(text, holds: isClean && !results.isEmpty, evidence: evidence)
    }

    public var text: String {
        claims.map { claim in
            (["\(claim.holds ? "holds" : "FAILS"): \(claim.text)"] + claim.evidence.map { "    \($0)" })
                .joined(separator: "\n")
        }.joined(separator: "\n")
    }

    public var summary: String {
        "\(claims.count { $0.holds }) of \(Text.count(claims.count, "claim")) hold; \(searched.files) files with "
            + "\(searched.bytes) bytes searched for what must be gone (--verbose: the evidence)"
    }

    /// The last line of a report: in green if everything holds, in red if a step failed or a claim does not hold.
    public func verdict(_ failure: String?, proved: String, notProved: String, inColor: Bool) -> String {
        let text = failure.map { "FAILED: \($0)" } ?? (holds ? "proved: \(proved)" : "NOT PROVED: \(notProved)")
        return inColor ? "\u{1B}[1;\(failure == nil && holds ? 32 : 31)m\(text)\u{1B}[0m" : text
    }

    private static func summary(_ entry: Results.Element) -> String {
        let result = entry.result
        let found = result.findings.isEmpty ? "found nothing" : "found in \(Text.count(result.findings.count, "place"))"
        return "\(entry.name): \(Text.count(result.files.count, "file")), \(result.bytes) bytes searched, \(found)"
    }
}
