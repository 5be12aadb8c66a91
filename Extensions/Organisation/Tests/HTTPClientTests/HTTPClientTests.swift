import Basics
import Glibc
import HTTPClient
import Identity
import NotifyCenterTestKit
import Testing

@Suite("HTTP client against faulty servers")
struct HTTPClientTests {
    /// The reason why the client rejects the response; `nil` if it accepts it.
    private func refusal(_ request: HTTPRequest, by client: HTTPClient) async -> HTTPError.Reason? {
        do throws(HTTPError) {
            _ = try await client.send(request)
            return nil
        } catch {
            return error.reason
        }
    }

    /// The name of a reason, without libcurl's words.
    private func word(_ reason: HTTPError.Reason?) -> String? {
        reason.map { String("\($0)".prefix { $0 != "(" }) }
    }

    private func echo(_ response: HTTPResponse) throws -> JSONValue {
        try JSONValue(parsing: response.body, limits: JSONLimits(size: 65_536))
    }

    @Test("a response has its status, fields and body, over HTTP/1.1 and without cookies")
    func answer() async throws {
        let server = try await FaultyServer.shared.value
        let client = server.client()
        for host in ["localhost", "127.0.0.1", "localhost"] {
            let response = try await client.send(HTTPRequest(server.address("echo?a=b", host: host)))
            #expect(response.status == 200 && response.fields["content-type"] == "application/json; charset=utf-8")
            #expect(response.retryAfter == .seconds(300))
            let said = try echo(response)
            #expect(["version", "path"].map { said[$0]?.string } == ["HTTP/1.1", "/echo?a=b"])
            #expect(said["fields"]?["cookie"] == nil && said["fields"]?["accept-encoding"] == nil)
        }
        let refused = try await client.send(HTTPRequest(server.address("unavailable")))
        #expect(refused.status == 503 && refused.retryAfter == .seconds(7))
        // An HTML page is accepted, with its media type.
        let page = try await client.send(HTTPRequest(server.address("html")))
        #expect(page.fields["content-type"]?.hasPrefix("text/html") == true)
    }

    @Test("a form is posted with its fields, without a wait for 100 Continue and only once")
    func post() async throws {
        let server = try await FaultyServer.shared.value
        let body = FormFields.encode([("code", "a b&c"), ("filler", String(repeating: "x", count: 5000))])
        for text in [body, ""] {
            let method = HTTPRequest.Method.post(Array(text.utf8), contentType: FormFields.contentType)
            let request = HTTPRequest(try server.address("echo"), method, fields: ["Authorization": "Basic YTpi"])
            let said = try echo(await server.client().send(request))
            #expect(["method", "body"].map { said[$0]?.string } == ["POST", text])
            let names = ["content-type", "authorization", "expect"]
            #expect(names.map { said["fields"]?[$0]?.string } == [FormFields.contentType, "Basic YTpi", nil])
        }
        // It is not sent again if the connection ends without a response.
        let client = server.client()
        _ = try await client.send(HTTPRequest(server.address("echo")))
        let form = HTTPRequest(try server.address("drop"), .post([1], contentType: FormFields.contentType))
        #expect(await word(refusal(form, by: client)) == "brokenOff")
        let drops = try await client.send(HTTPRequest(server.address("drops")))
        #expect(String(decoding: drops.body, as: UTF8.self) == "1")
    }

    @Test("untrusted servers and unusable responses are rejected with the reason")
    func unusable() async throws {
        let server = try await FaultyServer.shared.value
        let client = server.client()
        for (listener, path, client, reason) in [
            ("stranger", "echo", client, "untrusted"), ("elsewhere", "echo", client, "untrusted"),
            ("expired", "echo", client, "untrusted"), ("old", "echo", client, "untrusted"),
            // Only the configured authority is trusted, not the system's. If its file is missing, no authority is.
            ("good", "echo", HTTPClient(), "untrusted"),
            ("good", "echo", HTTPClient(trustAnchors: "/nonexistent/authority.pem"), "untrusted"),
            ("good", "redirect", client, "redirected"), ("good", "bomb", client, "encoded"),
            ("good", "cut", client, "brokenOff"), ("good", "no-http", client, "brokenOff"),
        ] {
            let refusal = await refusal(HTTPRequest(try server.address(path, listener: listener)), by: client)
            #expect(word(refusal) == reason, "\(path) of \(listener): \(String(describing: refusal))")
            if path == "bomb" { #expect(refusal == .encoded("gzip")) }
        }
    }

    @Test("a response of 1 GiB ends at the limit, whether or not its size is announced")
    func large() async throws {
        let server = try await FaultyServer.shared.value
        let client = server.client()
        let before = peakMemory()
        for (path, limit) in [
            ("large", 100_000), ("large-unannounced", 100_000), ("large-header", HTTPLimits.headerSize),
        ] {
            let request = HTTPRequest(try server.address(path), limits: HTTPLimits(size: 100_000))
            #expect(await refusal(request, by: client) == .tooLarge(limit))
        }
        #expect(peakMemory() - before < 768 * 1024, "KiB; other tests run beside this one")
        let bounded = HTTPRequest(try server.address("html"), limits: HTTPLimits(size: 35))
        #expect(try await client.send(bounded).body.count == 35)
    }

    private func peakMemory() -> Int {
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        return usage.ru_maxrss
    }

    @Test("a request to a slow or hanging server ends at the time limit", arguments: ["slow", "hang"])
    func slow(path: String) async throws {
        let server = try await FaultyServer.shared.value
        let request = HTTPRequest(try server.address(path), limits: HTTPLimits(total: .milliseconds(700)))
        let start = ContinuousClock.now
        #expect(await refusal(request, by: server.client(patience: 1)) == .timedOut)
        #expect(ContinuousClock.now - start >= .milliseconds(600))
    }

    @Test("a hanging server delays no other request up to the limit; cancelled requests end")
    func capacity() async throws {
        let server = try await FaultyServer.shared.value
        let client = server.client()
        let limits = HTTPLimits(connect: .seconds(600), total: .seconds(600))
        let request = HTTPRequest(try server.address("hang"), limits: limits)
        func others() async throws {
            for _ in 0..<10 { _ = try await client.send(HTTPRequest(server.address("html"))) }
        }
        let reasons = await withTaskGroup(of: HTTPError.Reason?.self) { group in
            for _ in 1..<HTTPClient.capacity { group.addTask { await refusal(request, by: client) } }
            await #expect(throws: Never.self) { try await others() }
            for _ in 0..<4 { group.addTask { await refusal(request, by: client) } }
            var reasons: [HTTPError.Reason?] = []
            for await reason in group {
                reasons.append(reason)
                if reasons.count == 3 { group.cancelAll() }
            }
            return reasons
        }
        #expect(reasons.prefix(3).allSatisfy { $0 == .busy })
        #expect(reasons.count == HTTPClient.capacity + 3 && reasons.dropFirst(3).allSatisfy { $0 == .cancelled })
        try await others()
        // A request that is cancelled before it begins.
        let task = Task {
            while !Task.isCancelled { await Task.yield() }
            return await refusal(request, by: client)
        }
        task.cancel()
        #expect(await task.value == .cancelled)
    }

    @Test("a refused connection has address and remedy; an invalid request is not sent")
    func unreachable() async throws {
        let address = try #require(HTTPAddress("http://127.0.0.1:1/token?code=secret"))
        let error = await #expect(throws: HTTPError.self) { try await HTTPClient().send(HTTPRequest(address)) }
        let text = try #require(error?.description)
        #expect(word(error?.reason) == "unreachable")
        #expect(text.hasPrefix("GET http://127.0.0.1:1/token: no connection ("))
        #expect(text.contains("check the network") && !text.contains("secret"))
        // Fields with line breaks, and bodies that are too large.
        let large = [UInt8](repeating: 0x61, count: HTTPLimits.requestSize + 1)
        for request in [
            HTTPRequest(address, fields: ["Authorization": "a\r\nHost: b"]), HTTPRequest(address, fields: ["A:": "b"]),
            HTTPRequest(address, fields: ["": "b"]), HTTPRequest(address, fields: ["A": "é"]),
            HTTPRequest(address, .post(large, contentType: "text/plain")),
            HTTPRequest(address, .post([], contentType: "text/plain\n")),
        ] { #expect(await refusal(request, by: HTTPClient()) == .invalidRequest) }
    }
}

@Suite("Addresses and forms")
struct HTTPAddressTests {
    @Test("https is allowed everywhere, http on this machine only; other texts are rejected")
    func addresses() {
        for text in [
            "https://login.example.com", "https://login.example.com:8443/a/b?c=d", "HTTPS://Login.Example.com/",
            "http://localhost:8080/x", "http://127.0.0.1/", "http://[::1]:80/", "https://[2001:db8::1]/",
        ] { #expect(HTTPAddress(text) != nil, "\(text)") }
        for text in [
            "", "login.example.com", "http://login.example.com/", "http://localhost.example.com/", "ftp://localhost/",
            "file:///etc/passwd", "https://", "https:///path", "https://user@example.com/",
            "https://user:p@example.com/", "https://example.com/#fragment", "https://exa mple.com/",
            "https://example.com/\u{0}", "https://example.com\\@b/", "https://exämple.com/",
            "http://127.0.0.1@example.com/", "javascript:alert(1)", "http://localhost:80@example.com/",
            "http://127.0.0.1.example.com/", "http://127.0.0.2/", "http://[::2]/", "https://example.com/\r\nHost: b",
        ] { #expect(HTTPAddress(text) == nil, "\(text)") }
        #expect(HTTPAddress("https://A.example:8443/p?code=secret")?.description == "https://a.example:8443/p")
        let extended = HTTPAddress("https://a.example/?x=1")?.adding(query: [("y", "a b+/")])
        #expect(extended == "https://a.example/?x=1&y=a%20b%2B%2F")
        #expect(HTTPAddress("https://a.example")?.adding(query: [("y", "é")]) == "https://a.example?y=%C3%A9")
    }

    @Test("forms are decoded; repeated names and broken escapes are rejected")
    func forms() {
        let fields = [("state", "a&b=c%"), ("code", "é +/?"), ("empty", "")]
        #expect(FormFields.decode(FormFields.encode(fields)) == Dictionary(uniqueKeysWithValues: fields))
        #expect(FormFields.decode("a=1+2&b") == ["a": "1 2", "b": ""])
        #expect(FormFields.decode("") == [:])
        for text in ["a=1&a=2", "a=1&%61=2", "a=%", "a=%1", "a=%zz", "a=%FF", "a=%C3"] {
            #expect(FormFields.decode(text) == nil, "\(text)")
        }
    }
}
