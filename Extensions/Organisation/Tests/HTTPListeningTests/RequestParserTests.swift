import Testing

@testable import HTTPListening

@Suite("Incremental parsing of requests")
struct RequestParserTests {
    private func parse(_ text: String) -> RequestParser.Progress {
        var parser = RequestParser()
        return parser.take(Array(text.utf8))
    }

    private let post =
        "POST /logout?a=b HTTP/1.1\r\nHost: device\r\nContent-Type:  text/plain \r\nContent-Length: 3\r\n\r\nabc"

    @Test("a request is the same in any pieces, and incomplete until its last byte")
    func pieces() {
        let whole = ReceivedRequest(
            method: "POST",
            path: "/logout",
            query: "a=b",
            fields: ["host": "device", "content-type": "text/plain", "content-length": "3"],
            body: Array("abc".utf8)
        )
        #expect(parse(post) == .complete(whole))
        for size in 1...40 {
            var parser = RequestParser()
            var rest = Array(post.utf8)[...]
            while rest.count > size {
                #expect(parser.take(rest.prefix(size)) == .incomplete)
                rest = rest.dropFirst(size)
            }
            #expect(parser.take(rest) == .complete(whole))
        }
        for (target, path, query) in [
            ("/callback?code=a%20b&state=c?", "/callback", "code=a%20b&state=c?"), ("/callback?", "/callback", ""),
            ("/", "/", nil),
        ] {
            let request = ReceivedRequest(method: "GET", path: path, query: query)
            #expect(parse("GET \(target) HTTP/1.1\r\n\r\n") == .complete(request))
        }
    }

    @Test(
        "ambiguous or malformed requests are rejected",
        arguments: [
            ("\r\n\r\n", 400), ("GET /\r\n\r\n", 400), ("GET / HTTP/2\r\n\r\n", 400), ("GET  / HTTP/1.1\r\n\r\n", 400),
            ("GET http://a/ HTTP/1.1\r\n\r\n", 400), ("GET / HTTP/1.1\r\n a: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n", 400), ("GET / HTTP/1.1\r\na : b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\na: b\r\nA: c\r\n\r\n", 400), ("GET / HTTP/1.1\r\nnonsense\r\n\r\n", 400),
            ("GET / HTTP/1.1\na: b\r\n\r\n", 400), ("GET / HTTP/1.1\r\na: b\rc\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\na: \u{0}\r\n\r\n", 400), ("GET / HTTP/1.1\r\na: ä\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\n\r\n", 411), ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
            ("GET /\u{7F} HTTP/1.1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 501),
        ]
    )
    func refused(text: String, status: Int) { #expect(parse(text) == .refused(status)) }

    @Test("a header of 8 KiB is accepted, one more byte is rejected, also in pieces")
    func longHeaders() {
        let beginning = "GET /callback?"
        let room = RequestParser.longestHeader - beginning.utf8.count - " HTTP/1.1".utf8.count
        let query = String(repeating: "a", count: room)
        let whole = ReceivedRequest(method: "GET", path: "/callback", query: query)
        #expect(parse("\(beginning)\(query) HTTP/1.1\r\n\r\n") == .complete(whole))
        #expect(parse("\(beginning)\(query)a HTTP/1.1\r\n\r\n") == .refused(431))
        var parser = RequestParser()
        for _ in 0..<8 { #expect(parser.take(Array(repeating: UInt8(ascii: "a"), count: 1024)) == .incomplete) }
        #expect(parser.take([UInt8(ascii: "a")]) == .refused(431))
    }

    @Test("random bytes do not trap")
    func noise() {
        var random = SystemRandomNumberGenerator()
        for _ in 0..<5000 {
            var bytes = Array(post.utf8)
            for _ in 0..<Int.random(in: 1...6, using: &random) {
                bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            var parser = RequestParser()
            if parser.take(bytes[..<(bytes.count / 2)]) == .incomplete { _ = parser.take(bytes[(bytes.count / 2)...]) }
        }
    }
}
