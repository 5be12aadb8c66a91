import Basics
import Testing

@Suite("Texts of other processes")
struct TextTests {
    private static let hostile = ["\u{2028}", "\u{2029}", "\u{85}", "\u{202E}", "\u{0}", "\n", "\u{1B}"]

    @Test("a printable text has one line, and shows characters that control a terminal")
    func printable() {
        #expect("Grüße, 世界 \u{1F600}".printable == "Grüße, 世界 \u{1F600}")
        #expect(Self.hostile.map(\.printable) == ["2028", "2029", "85", "202e", "0", "a", "1b"].map { "\\u{\($0)}" })
    }

    @Test("a bounded text has at most so many scalars, and replaces invisible characters")
    func bounded() {
        let long = "e" + String(repeating: "\u{301}", count: 100_000)
        #expect(long.count == 1 && long.printable(500).unicodeScalars.count == 501, "one character, with an ellipsis")
        #expect("Grüße an alle".printable(500) == "Grüße an alle")
        #expect("abc".printable(3) == "abc" && "abcd".printable(3) == "abc…")
        #expect(Self.hostile.allSatisfy { $0.printable(9) == "\u{FFFD}" })
    }

    @Test("a table's columns are as wide as their widest cells")
    func table() {
        let table = TextTable(
            ["N", "NAME", "LAST"],
            [["1", "a", "x"], ["100", "longer", ""], ["2", "\u{1B}", "y"]],
            rightAligned: [0]
        )
        #expect(table.lines == ["  N  NAME    LAST", "  1  a       x", "100  longer", "  2  \\u{1b}  y"])
        #expect(TextTable(["A", "B"]).lines == ["A  B"])
    }
}
