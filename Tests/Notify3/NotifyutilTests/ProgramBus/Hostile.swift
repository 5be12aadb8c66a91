/// Names that break careless code.
enum Hostile {
    static let names = [
        "", " ", "a b", "quote\"back\\slash", "line\nfeed\r\ttab", "\u{1B}[31mred\u{1B}[0m\u{7}",
        "\u{7F}\u{85}\u{9B}2J", "emoji\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}", "e\u{301}",
        "\u{2028}\u{2029}\u{202E}rtl\u{61C}", "null", "{\"name\":\"x\"}",
        String(repeating: "long.", count: 500), "'; rm -rf / #", "$(false)`false`", "*", "\u{FFFD}\u{FFFF}",
    ]
}
