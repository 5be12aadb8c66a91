import Foundation
import Testing

@Suite("The rules of the documentation")
struct SemanticsPageTests {
    private static let root = URL(filePath: #filePath)
        .deletingLastPathComponent().appending(path: "../../..").standardized

    @Test("every rule is cited by a test or says that it is not tested")
    func everyRuleIsTested() throws {
        let page = try String(
            contentsOf: Self.root.appending(path: "Sources/Notifications/NotifyCenter/NotifyCenter.docc/Semantics.md"),
            encoding: .utf8
        )
        let rules = page.components(separatedBy: "- **CF-").dropFirst()
        #expect(rules.count == 10 + 11 + 8 + 12 + 7 + 9 + 7 + 16 + 9 + 12 + 11 + 10)
        let cited = try citations()
        for rule in rules {
            let number = "CF-\(rule.prefix { $0 != "*" })"
            let isExempt = rule.contains("*Not\n") || rule.contains("*Not tested")
            #expect(cited.contains(number) || isExempt, "\(number) has no test, and says nothing about it")
            #expect(!(cited.contains(number) && isExempt), "\(number) has a test, and says that it has none")
        }
    }

    /// Returns every rule that a comment of a test cites, with ranges such as `CF-S3…S6` and lists such as `CF-S3, S4`
    /// expanded.
    private func citations() throws -> Set<String> {
        var cited: Set<String> = []
        let files = FileManager.default.enumerator(
            at: Self.root.appending(path: "Tests"),
            includingPropertiesForKeys: nil
        )
        for case let file as URL in try #require(files) where file.pathExtension == "swift" {
            for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") {
                guard let comment = line.range(of: "//").map({ line[$0.upperBound...] }) else { continue }
                for match in comment.matches(of: /(?:CF-)?([A-Z])(\d+)(?:…[A-Z](\d+))?/) {
                    guard let first = Int(match.2), comment.contains("CF-") else { continue }
                    for number in first...max(first, match.3.flatMap { Int($0) } ?? first) {
                        cited.insert("CF-\(match.1)\(number)")
                    }
                }
            }
        }
        return cited
    }
}
