import Basics
import Glibc
import HTTPClient
import Identity
import NotifyCenterTestKit
import Testing

@Suite("HTTP client against faulty servers")
struct HTTPClientTests {
    /// The reason why the client rejects the response; `nil` if it accepts it.
    private func refusal(
        _ request: HTTPRequest,
        by client: HTTPClient
    ) async -> HTTPError.Reason? {
        do throws(HTTPError) {
            _ = try await client.send(request)
            return nil
        } catch {
            return error.reason
        }
    }

    private func echo(_ response: HTTPResponse) throws -> JSONValue {
        try JSONValue(parsing: response.body, limits: JSONLimits(size: 65_536))
    }

    @Test("a response has its status, fields and body, over HTTP/1.1 and without cookies")
    func answer() async throws {
        let server = try await FaultyServer()
        let client = server.client()
        for host in ["localhost", "127.0.0.1"] {
            let response = try await client.send(HTTPRequest(server.address("echo?a=b", host: host)))
            #expect(response.status == 200 && response.mediaType == "application/json")
            #expect(response.retryAfter == .seconds(300))
            let said = try echo(response)
            #expect(["version", "path"].map { said[$0]?.string } == ["HTTP/1.1", "/echo?a=b"])
            #expect(said["fields"]?["cookie"] == nil && said["fields"]?["accept-encoding"] == nil)
        }
        let again = try echo(await client.send(HTTPRequest(server.address("echo"))))
        #expect(again["fields"]?["cookie"] == nil)
        let refused = try await client.send(HTTPRequest(server.address("unavailable")))
        #expect(refused.status == 503 && refused.retryAfter == .seconds(7))
    }

    @Test("a form is posted with its fields; a large one does not wait for 100 Continue")
    func post() async throws {
        let server = try await FaultyServer()
        let body = FormFields.encode([("code", "a b&c"), ("filler", String(repeating: "x", count: 5000))])
        let response = try await server.client().send(
            HTTPRequest(
                server.address("echo"),
                .post(Array(body.utf8), contentType: FormFields.contentType),
                fields: ["Authorization": "Basic YTpi"]
            )
        )
        let said = try echo(response)
        #expect(["method", "body"].map { said[$0]?.string } == ["POST", body])
        #expect(
            ["content-type", "authorization", "expect"].map { said["fields"]?[$0]?.string }
                == [FormFields.contentType, "Basic YTpi", nil]
        )
        let empty = HTTPRequest(try server.address("echo"), .post([], contentType: FormFields.contentType))
        #expect(try echo(await server.client().send(empty))["body"]?.string == "")
    }

    @Test("a form is not sent again if the connection ends without a response")
    func notTwice() async throws {
        let server = try await FaultyServer()
        let client = server.client()
        _ = try await client.send(HTTPRequest(server.address("echo")))
        let form = HTTPRequest(try server.address("drop"), .post([1], contentType: FormFields.contentType))
        guard case .brokenOff = await refusal(form, by: client) else {
            Issue.record("it has an answer")
            return
        }
        let drops = try await client.send(HTTPRequest(server.address("drops")))
        #expect(String(decoding: drops.body, as: UTF8.self) == "1")
    }

    @Test("untrusted, foreign and expired certificates and old TLS are rejected")
    func certificates() async throws {
        let server = try await FaultyServer()
        for listener in ["stranger", "elsewhere", "expired", "old"] {
            let reason = await refusal(HTTPRequest(try server.address("echo", listener: listener)), by: server.client())
            guard case .untrusted = reason else {
                Issue.record("\(listener): \(String(describing: reason))")
                continue
            }
        }
    }

    @Test("only the configured authority is trusted, not the system's")
    func trustAnchors() async throws {
        let server = try await FaultyServer()
        guard case .untrusted = await refusal(HTTPRequest(try server.address("echo")), by: HTTPClient()) else {
            Issue.record("the system does not know this authority")
            return
        }
        let client = HTTPClient(trustAnchors: "/nonexistent/authority.pem")
        guard case .untrusted = await refusal(HTTPRequest(try server.address("echo")), by: client) else {
            Issue.record("without the file nobody is trusted")
            return
        }
    }

    @Test("unusable responses are rejected with the reason")
    func otherAnswers() async throws {
        let server = try await FaultyServer()
        let client = server.client()
        #expect(await refusal(HTTPRequest(try server.address("redirect")), by: client) == .redirected)
        #expect(await refusal(HTTPRequest(try server.address("bomb")), by: client) == .encoded("gzip"))
        for path in ["cut", "no-http"] {
            guard case .brokenOff = await refusal(HTTPRequest(try server.address(path)), by: client) else {
                Issue.record("\(path) was taken")
                continue
            }
        }
        // An HTML page is accepted, with its media type.
        #expect(try await client.send(HTTPRequest(server.address("html"))).mediaType == "text/html")
    }

    @Test("a response of 1 GiB ends at the limit, whether or not its size is announced")
    func large() async throws {
        let server = try await FaultyServer()
        let client = server.client()
        let before = peakMemory()
        for path in ["large", "large-unannounced"] {
            let request = HTTPRequest(try server.address(path), limits: HTTPLimits(size: 100_000))
            #expect(await refusal(request, by: client) == .tooLarge(100_000))
        }
        #expect(
            await refusal(HTTPRequest(try server.address("large-header")), by: client)
                == .tooLarge(HTTPLimits.headerSize)
        )
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
        let server = try await FaultyServer()
        let request = HTTPRequest(try server.address(path), limits: HTTPLimits(total: .milliseconds(700)))
        let start = ContinuousClock.now
        #expect(await refusal(request, by: server.client(patience: 1)) == .timedOut)
        #expect(ContinuousClock.now - start >= .milliseconds(600))
    }

    @Test("a hanging server delays no other request; a cancelled request ends at once")
    func cancellation() async throws {
        let server = try await FaultyServer()
        let client = server.client()
        let limits = HTTPLimits(connect: .seconds(600), total: .seconds(600))
        let hanging = try (0..<HTTPClient.capacity - 1).map { _ in
            HTTPRequest(try server.address("hang"), limits: limits)
        }
        await withTaskGroup(of: HTTPError.Reason?.self) { group in
            for request in hanging { group.addTask { await refusal(request, by: client) } }
            await #expect(throws: Never.self) {
                for _ in 0..<10 { _ = try await client.send(HTTPRequest(server.address("html"))) }
            }
            group.cancelAll()
            for await reason in group { #expect(reason == .cancelled) }
        }
        // A request that is cancelled before it begins.
        let task = Task { [request = hanging[0]] in
            while !Task.isCancelled { await Task.yield() }
            return await refusal(request, by: client)
        }
        task.cancel()
        #expect(await task.value == .cancelled)
    }

    @Test("requests over the limit are rejected, and accepted again after the others end")
    func capacity() async throws {
        let server = try await FaultyServer()
        let client = server.client()
        let limits = HTTPLimits(connect: .seconds(600), total: .seconds(600))
        let request = HTTPRequest(try server.address("hang"), limits: limits)
        let reasons = await withTaskGroup(of: HTTPError.Reason?.self) { group in
            for _ in 0..<HTTPClient.capacity + 3 { group.addTask { await refusal(request, by: client) } }
            var reasons: [HTTPError.Reason?] = []
            for await reason in group {
                reasons.append(reason)
                if reasons.count == 3 { group.cancelAll() }
            }
            return reasons
        }
        #expect(reasons.prefix(3).allSatisfy { $0 == .busy })
        #expect(reasons.dropFirst(3).allSatisfy { $0 == .cancelled })
        #expect(try await client.send(HTTPRequest(server.address("html"))).status == 200)
    }

    @Test("a refused connection names the address without its query, and the remedy")
    func unreachable() async throws {
        let address = try #require(HTTPAddress("http://127.0.0.1:1/token?code=secret"))
        do throws(HTTPError) {
            _ = try await HTTPClient().send(HTTPRequest(address))
            Issue.record("somebody listens on port 1")
        } catch {
            guard case .unreachable = error.reason else {
                Issue.record("\(error)")
                return
            }
            #expect(error.description.hasPrefix("GET http://127.0.0.1:1/token: no connection ("))
            #expect(error.description.contains("check the network") && !error.description.contains("secret"))
        }
    }

    @Test("fields with line breaks and bodies that are too large are not sent")
    func invalidRequests() async throws {
        let address = try #require(HTTPAddress("http://127.0.0.1:1/"))
        let large = [UInt8](repeating: 0x61, count: HTTPLimits.requestSize + 1)
        for request in [
            HTTPRequest(address, fields: ["Authorization": "a\r\nHost: b"]), HTTPRequest(address, fields: ["A:": "b"]),
            HTTPRequest(address, fields: ["": "b"]), HTTPRequest(address, fields: ["A": "é"]),
            HTTPRequest(address, .post(large, contentType: "text/plain")),
            HTTPRequest(address, .post([], contentType: "text/plain\n")),
        ] {
            #expect(await refusal(request, by: HTTPClient()) == .invalidRequest)
        }
    }
}
