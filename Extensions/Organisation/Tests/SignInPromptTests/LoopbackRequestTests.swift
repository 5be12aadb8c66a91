import HTTPListening
import Testing

@testable import SignInPrompt

@Suite("Requests for the page of a sign-in")
struct LoopbackRequestTests {
    private static let host = "127.0.0.1:4711"
    private static let form = "application/x-www-form-urlencoded"

    private func take(
        _ method: String,
        query: String? = nil,
        host: String? = LoopbackRequestTests.host,
        type: String? = nil,
        body: [UInt8] = []
    ) throws(LoopbackRequest.Refusal) -> LoopbackRequest {
        let fields = ["host": host, "content-type": type].compactMapValues { $0 }
        let received = ReceivedRequest(method: method, path: "/page", query: query, fields: fields, body: body)
        return try LoopbackRequest(received, host: Self.host)
    }

    @Test("a request for the page and its form are accepted unchanged")
    func requests() throws {
        #expect(try take("GET", query: "code=a%20b") == LoopbackRequest("/page", query: "code=a%20b"))
        let text = "username=ada&password=p%C3%A4ss"
        let form = LoopbackRequest("/page", method: .post, form: text)
        #expect(try take("POST", type: Self.form + "; charset=utf-8", body: Array(text.utf8)) == form)
    }

    @Test("a request that a browser would not send to the page is refused")
    func refusals() {
        let notFound = LoopbackRequest.Refusal(status: .notFound)
        #expect(throws: notFound) { try take("PUT") }
        #expect(throws: notFound) { try take("GET", host: nil) }
        #expect(throws: notFound) { try take("GET", host: "evil.example") }
        let malformed = LoopbackRequest.Refusal(status: .malformed)
        #expect(throws: malformed) { try take("GET", body: [0x78]) }
        #expect(throws: malformed) { try take("POST", body: [0x78]) }
        #expect(throws: malformed) { try take("POST", type: "application/json", body: [0x78]) }
        #expect(throws: malformed) { try take("POST", type: Self.form, body: [0xFF]) }
    }
}
