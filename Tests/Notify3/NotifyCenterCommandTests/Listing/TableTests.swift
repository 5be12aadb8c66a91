import Testing

@testable import notify_center

@Suite("Tables")
struct TableTests {
    private var table: Table {
        var table = Table([.init("N", .right), .init("NAME"), .init("LAST")])
        table.add(["1", "a", "x"])
        table.add(["100", "longer", ""])
        return table
    }

    @Test("columns are as wide as their widest cell")
    func widths() {
        #expect(
            table.text(isColourful: false) == """
                  N  NAME    LAST
                  1  a       x
                100  longer\u{20}\u{20}

                """
        )
    }

    @Test("headings are bold in a colourful table, and the rows stay the same")
    func colour() {
        let lines = table.text(isColourful: true).split(separator: "\n")
        #expect(lines[0] == "\u{1B}[1m  N  NAME    LAST\u{1B}[0m")
        #expect(lines[1] == "  1  a       x")
    }

    @Test("a table without rows has headings")
    func empty() { #expect(Table([.init("A"), .init("B")]).text(isColourful: false) == "A  B\n") }
}
