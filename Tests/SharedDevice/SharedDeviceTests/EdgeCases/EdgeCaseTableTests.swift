import Foundation
import Testing

@Suite("The table of edge cases")
struct EdgeCaseTableTests {
    @Test("each documented edge case has a test here, and no others are cited")
    func table() throws {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        let documentation = folder.appendingPathComponent("../../../../Documentation/SharedDeviceMode.md").standardized
        let table = try String(contentsOf: documentation, encoding: .utf8).split(separator: "\n")
            .compactMap { line in try? /\| (E\d+) \|.*/.wholeMatch(in: line)?.output.1 }
            .map(String.init)
        #expect(table == (1...26).map { "E\($0)" })
        var cited: Set<String> = []
        for file in try FileManager.default.contentsOfDirectory(atPath: folder.path) where file.hasSuffix(".swift") {
            let text = try String(contentsOf: folder.appendingPathComponent(file), encoding: .utf8)
            let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
            for (line, next) in zip(lines, lines.dropFirst()) {
                guard let numbers = try /\s*\/\/ (E\d+(?:, E\d+)*)/.wholeMatch(in: line)?.output.1 else { continue }
                #expect(next.contains("@Test"), "\(file): \(numbers) stands above no test")
                cited.formUnion(numbers.split(separator: ", ").map(String.init))
            }
        }
        #expect(cited == Set(table))
    }
}
