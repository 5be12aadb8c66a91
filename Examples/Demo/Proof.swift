import ExampleSupport
import SharedDeviceTestKit

/// Claims that were put to the test, with what was seen.
struct Proof: Sendable {
    /// What a search saw under each of some directories.
    typealias Results = [(name: String, result: ByteSearch.Result)]

    struct Claim: Sendable, Codable {
        let holds: Bool
        let text: String
        let evidence: [String]
    }

    private(set) var claims: [Claim] = []

    var holds: Bool { claims.allSatisfy(\.holds) }

    mutating func add(_ text: String, holds: Bool, evidence: [String] = []) {
        claims.append(Claim(holds: holds, text: text, evidence: evidence))
    }

    /// That each directory has every one of the markers in it: a search that finds nothing where something is proves nothing.
    mutating func addPresence(_ text: String, of markers: [Marker], in results: Results) {
        let isThere = results.allSatisfy { entry in markers.allSatisfy { entry.result.contains($0) } }
        add(text, holds: isThere && !results.isEmpty, evidence: results.map(Self.summary))
    }

    /// That no directory has any of them.
    ///
    /// - Parameter listsFiles: shows every file that was searched.
    mutating func addAbsence(_ text: String, in results: Results, listsFiles: Bool = false) {
        let evidence = results.flatMap { entry in
            [Self.summary(entry)]
                + (listsFiles ? entry.result.files.map { "    \($0.path), \($0.bytes) bytes" } : [])
                + entry.result.findings.map { finding in
                    let place = finding.offset.map { "at byte \($0)" } ?? "in the name"
                    return "    FOUND the \(finding.marker) (\(finding.encoding)) \(place) of \(finding.path)"
                }
        }
        let isClean = results.allSatisfy { $0.result.findings.isEmpty }
        add(text, holds: isClean && !results.isEmpty, evidence: evidence)
    }

    /// For people.
    var text: String {
        claims.map { claim in
            (["\(claim.holds ? "holds" : "FAILS"): \(claim.text)"] + claim.evidence.map { "    \($0)" })
                .joined(separator: "\n")
        }.joined(separator: "\n")
    }

    private static func summary(_ entry: Results.Element) -> String {
        let result = entry.result
        let found = result.findings.isEmpty ? "found nothing" : "found in \(result.findings.count) places"
        return "\(entry.name): \(result.files.count) files, \(result.bytes) bytes searched, \(found)"
    }
}
