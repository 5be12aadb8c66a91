import Basics
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The parts of the page that draw timelines: the console's own modules and style, and the result in their format. The
/// files come from the folder `Console`, so that there is only one drawing code.
enum TimelinePage {
    /// Each module precedes the modules that import it.
    private static let modules: [(name: String, bytes: [UInt8])] = [
        ("dom", PackageResources.dom_js), ("words", PackageResources.words_js), ("day", PackageResources.day_js),
        ("rounds", PackageResources.rounds_js), ("drawing", PackageResources.drawing_js),
        ("report", PackageResources.report_js),
    ]

    static var style: String { String(decoding: PackageResources.shared_device_css, as: UTF8.self) }

    /// A single script without imports: each module becomes a function that returns its exports.
    static var script: String {
        let parts = modules.map { bundled($0.name, String(decoding: $0.bytes, as: UTF8.self)) }
        let call = "module_report.drawReport(JSON.parse(document.getElementById(\"result\").textContent));"
        return (parts + [call]).joined(separator: "\n")
    }

    private static func bundled(_ name: String, _ text: String) -> String {
        var exported: [String] = []
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).map { line -> String in
            // import { a, b } from "./module.js";
            if line.hasPrefix("import {"), let names = line.firstRange(of: "} from"),
                let file = line.split(separator: "\"").dropFirst().first
            {
                let module = file.split(separator: "/").last?.prefix { $0 != "." } ?? ""
                return "const \(line[..<names.lowerBound].dropFirst("import ".count))} = module_\(module);"
            }
            guard line.hasPrefix("export ") else { return String(line) }
            let declaration = line.dropFirst("export ".count)
            let words = declaration.split { !($0.isLetter || $0.isNumber || $0 == "_" || $0 == "$") }
            exported += words.dropFirst().prefix(1).map(String.init)
            return String(declaration)
        }
        return
            "const module_\(name) = (() => {\n\(lines.joined(separator: "\n"))\nreturn { \(exported.joined(separator: ", ")) };\n})();"
    }

    /// The input of the script: the sign-outs, and the display name of each process.
    private struct Content: Encodable {
        let rounds: [CheckResult.Round]
        let names: [String: String]
    }

    /// - Returns: JSON without characters that could end the enclosing element.
    static func content(of result: CheckResult) -> String {
        let names = result.names
        let lanes = Set(result.rounds.flatMap { round in round.apps.map(\.identifier) + round.events.map(\.lane) })
        let content = Content(
            rounds: result.rounds,
            names: Dictionary(uniqueKeysWithValues: lanes.map { ($0, names[$0].printable) })
        )
        // Encoding numbers and strings cannot fail. Without its drawings, the page still has its tables.
        let bytes = (try? JSONEncoder().encode(content)) ?? Data()
        // Compare scalars, not characters: combined with a preceding scalar, one of these would be part of a different
        // character.
        let escapes: [Unicode.Scalar: String] = [
            "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u{7F}": "\\u007f",
        ]
        return String(decoding: bytes, as: UTF8.self).unicodeScalars.map { escapes[$0] ?? String($0) }.joined()
    }

    /// A random nonce: browsers run only scripts that carry it.
    static func nonce() -> String {
        (0..<4).map { _ in String(UInt64.random(in: .min ... .max), radix: 36) }.joined()
    }
}
