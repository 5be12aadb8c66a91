import Testing

@Suite("Programs that the tests run")
struct ProgramTests {
    // Several times: the program may end before the first byte is written or after the pipe is full.
    @Test("one that ends without reading its input is no matter", arguments: 1...10)
    func unreadInput(_ round: Int) async throws {
        let outcome = try await Program.sharedDevice.run(
            ["--help"],
            input: String(repeating: "x", count: 1 << 20),
            preparation: "exec true"
        )
        #expect(outcome.status == 0)
        #expect(outcome.output == "")
    }
}
