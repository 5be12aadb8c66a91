import DeviceView
import Testing

@Suite("Words for values")
struct WordsTests {
    @Test(
        "spans are short and never too fine, as the console's",
        arguments: [
            (0, "0 ms"), (0.0074, "7 ms"), (0.9999, "1.0 s"), (1.44, "1.4 s"), (59.7, "1 min"), (200, "3 min 20 s"),
            (7500, "2 h 5 min"), (273_600, "3 d 4 h"), (-1, "0 ms"), (.infinity, "long"), (.nan, "long"),
        ]
    )
    func spans(seconds: Double, text: String) { #expect(Words.span(seconds) == text) }
}
