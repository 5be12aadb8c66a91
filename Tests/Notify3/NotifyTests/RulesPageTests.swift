import Foundation
import Testing

@Suite struct RulesPageTests {
    /// Tests and code cite the sections of the page, for example `Rules, a.7`.
    @Test func everySectionOfTheRulesIsCitedByATest() throws {
        let path = packagePath("Sources/Notify3/notify/notify.docc/Rules.md")
        let page = try String(contentsOfFile: path, encoding: .utf8)
        let sections = page.split(separator: "\n").filter { $0.hasPrefix("## ") }
            .map { String($0.dropFirst(3).prefix { $0 != " " }) }
        #expect(sections == (1...15).map { "a.\($0)" } + ["b"])
        // Every section has a test, and tests cite only sections of the page.
        #expect(try citations() == Set(sections))
    }

    /// Returns the sections that comments and names of tests cite, for example `Rules, a.9, and a.12`, or `Rules, b`.
    private func citations() throws -> Set<String> {
        var cited: Set<String> = []
        let folder = URL(filePath: packagePath("Tests"))
        let files = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)
        for case let file as URL in try #require(files)
        where ["swift", "c", "cpp", "h", "py"].contains(file.pathExtension)
            && file.lastPathComponent != "RulesPageTests.swift"
        {
            for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
            where line.contains("Rules, ") || line.contains("// a.") {
                for match in line.matches(of: /\b(a\.\d+)\b|Rules, (b)\b/) {
                    cited.insert(String(match.1 ?? match.2 ?? ""))
                }
            }
        }
        return cited
    }
}
