import Testing

@testable import SharedDeviceBroker

@Suite("What other processes say, for the log")
struct ForeignTextTests {
    @Test("one character of any length is cut, too")
    func combining() {
        let long = "e" + String(repeating: "\u{301}", count: 100_000)
        #expect(long.count == 1)
        #expect(long.shortened(to: 500).unicodeScalars.count == 500)
        #expect(long.forLog(200).unicodeScalars.count == 200)
        #expect("Grüße 👩‍🌾".shortened(to: 500) == "Grüße 👩‍🌾")
    }

    @Test("it stays on its line")
    func lines() {
        #expect(
            "org.example.a\n2026 notice: signed in\u{1B}[2J".forLog(200)
                == "org.example.a\u{FFFD}2026 notice: signed in\u{FFFD}[2J"
        )
    }
}
