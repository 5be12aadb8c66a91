import Testing

@testable import SignInPrompt

@Suite("What the page of a sign-in takes for a request")
struct LoopbackReaderTests {
    private static let host = "127.0.0.1:4711"

    private func read(_ text: String) -> LoopbackReader.Progress {
        var reader = LoopbackReader(host: Self.host)
        return reader.take(text.utf8)
    }

    private func get(_ target: String, more: String = "") -> String {
        "GET \(target) HTTP/1.1\r\nHost: \(Self.host)\r\n\(more)\r\n"
    }

    private func post(_ form: String, length: String? = nil, more: String = "") -> String {
        "POST /form HTTP/1.1\r\nHost: \(Self.host)\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            + "Content-Length: \(length ?? String(form.utf8.count))\r\n\(more)\r\n\(form)"
    }

    @Test("a request is the same, however its bytes arrive")
    func pieces() {
        let expected = LoopbackRequest("/form", method: .post, form: "username=ada&password=p%C3%A4ss")
        let bytes = Array(post(expected.form).utf8)
        for size in [1, 2, 3, 7, 1000] {
            var reader = LoopbackReader(host: Self.host)
            var progress = LoopbackReader.Progress.incomplete
            for start in stride(from: 0, to: bytes.count, by: size) {
                #expect(progress == .incomplete)
                progress = reader.take(bytes[start..<min(start + size, bytes.count)])
            }
            #expect(progress == .request(expected), "pieces of \(size)")
        }
    }

    @Test("path and query are taken as they were sent")
    func targets() {
        #expect(read(get("/callback?code=a%20b&state=c")) == .request(.init("/callback", query: "code=a%20b&state=c")))
        #expect(read(get("/callback?")) == .request(.init("/callback", query: "")))
        #expect(read(get("/")) == .request(.init("/")))
    }

    @Test(
        "what is no request of this page is refused",
        arguments: [
            ("", LoopbackResponse.Status.malformed), ("GET /\r\n\r\n", .malformed),
            ("GET  / HTTP/1.1\r\n\r\n", .malformed),
            ("GET http://other/ HTTP/1.1\r\n\r\n", .malformed), ("GET / HTTP/2\r\n\r\n", .malformed),
            ("GET / HTTP/1.1\r\n\r\n", .notFound), ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", .notFound),
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1:4711\r\nHost: evil.example\r\n\r\n", .malformed),
            ("PUT / HTTP/1.1\r\nHost: 127.0.0.1:4711\r\n\r\n", .notFound),
            ("GET / HTTP/1.1\nHost: 127.0.0.1:4711\r\n\r\n", .malformed),
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1:4711\r\nContent-Length: 1\r\n\r\nx", .malformed),
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1:4711\r\nno colon\r\n\r\n", .malformed),
            ("GET /\u{7F} HTTP/1.1\r\nHost: 127.0.0.1:4711\r\n\r\n", .malformed),
        ]
    )
    func refusals(_ text: String, _ status: LoopbackResponse.Status) {
        #expect(read(text.isEmpty ? "\r\n\r\n" : text) == .refused(status))
    }

    @Test("a form of unknown, doubtful or excessive length is refused before it is read")
    func formLengths() {
        #expect(read(post("", length: "16385")) == .refused(.formTooLarge))
        #expect(read(post("", length: "99999999999999999999")) == .refused(.formTooLarge))
        for length in ["-1", "+1", "1 ", "0x1", "", "1,1"] {
            #expect(read(post("ab", length: length)) == .refused(.malformed), "“\(length)”")
        }
        #expect(read(post("ab", more: "Transfer-Encoding: chunked\r\n")) == .refused(.malformed))
        #expect(read(post("ab", more: "Content-Length: 1\r\n")) == .refused(.malformed))
        #expect(read(post("ab").replacing("x-www-form-urlencoded", with: "json")) == .refused(.malformed))
    }

    @Test("a head of more than 8 KiB is refused, with or without an end")
    func longHeads() {
        let room = LoopbackReader.longestHead - get("/callback?").utf8.count
        let query = String(repeating: "a", count: room)
        #expect(read(get("/callback?\(query)")) == .request(.init("/callback", query: query)))
        #expect(read(get("/callback?\(query)a")) == .refused(.headTooLarge))
        #expect(read(String(repeating: "a", count: LoopbackReader.longestHead)) == .incomplete)
        #expect(read(String(repeating: "a", count: LoopbackReader.longestHead + 1)) == .refused(.headTooLarge))
    }

    @Test("no bytes of a stranger trap")
    func noise() {
        var random = SystemRandomNumberGenerator()
        let seeds = [get("/callback?a=b"), post("username=a&password=b")].map { Array($0.utf8) }
        for round in 0..<5000 {
            var bytes = seeds[round % 2]
            for _ in 0..<Int.random(in: 1...6, using: &random) {
                bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            var reader = LoopbackReader(host: Self.host)
            _ = reader.take(bytes[..<(bytes.count / 2)])
            _ = reader.take(bytes[(bytes.count / 2)...])
        }
    }
}
