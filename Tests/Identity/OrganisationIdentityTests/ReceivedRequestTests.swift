import Testing

@testable import OrganisationIdentity

@Suite("Requests of strangers")
struct ReceivedRequestTests {
    private func parse(_ text: String) -> RequestParser.Progress {
        var parser = RequestParser()
        return parser.take(Array(text.utf8))
    }

    private let post =
        "POST /logout?a=b HTTP/1.1\r\nHost: device\r\nContent-Type:  text/plain \r\nContent-Length: 3\r\n\r\nabc"

    @Test("a request is the same in whatever pieces it arrives, and nothing is taken before it is whole")
    func pieces() {
        let whole = ReceivedRequest(
            method: "POST",
            path: "/logout",
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
    }

    @Test(
        "what could be read in two ways, or is no HTTP, is refused",
        arguments: [
            ("\r\n\r\n", 400), ("GET /\r\n\r\n", 400), ("GET / HTTP/2\r\n\r\n", 400), ("GET  / HTTP/1.1\r\n\r\n", 400),
            ("GET http://a/ HTTP/1.1\r\n\r\n", 400), ("GET / HTTP/1.1\r\n a: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n", 400), ("GET / HTTP/1.1\r\na : b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\na: b\r\nA: c\r\n\r\n", 400), ("GET / HTTP/1.1\r\nnonsense\r\n\r\n", 400),
            ("GET / HTTP/1.1\na: b\r\n\r\n", 400), ("GET / HTTP/1.1\r\na: b\rc\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\na: \u{0}\r\n\r\n", 400), ("GET / HTTP/1.1\r\na: ä\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\n\r\n", 411), ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 501),
        ]
    )
    func refused(text: String, status: Int) { #expect(parse(text) == .refused(status)) }

    @Test("a header that does not end is refused by its size")
    func endless() {
        var parser = RequestParser()
        for _ in 0..<8 { #expect(parser.take(Array(repeating: UInt8(ascii: "a"), count: 1024)) == .incomplete) }
        #expect(parser.take([UInt8(ascii: "a")]) == .refused(431))
        #expect(parse("GET /" + String(repeating: "a", count: 9000) + " HTTP/1.1\r\n\r\n") == .refused(431))
    }

    @Test("ten requests a second are taken, and ten at once after a quiet time")
    func rate() {
        let start = ContinuousClock.now
        var rate = RequestRate(perSecond: 10, at: start)
        #expect((0..<30).count { _ in rate.take(at: start) } == 10)
        #expect((0..<30).count { _ in rate.take(at: start + .milliseconds(250)) } == 2)
        #expect((0..<30).count { _ in rate.take(at: start + .seconds(3600)) } == 10)
    }
}
