import Basics
import FoundationEssentials
import HTTPClient
import Identity
import OpenIDConnect
import TestProviders
import Testing

@Suite("Requests to an event stream and their times")
struct SignalStreamTests {
    private let start = ContinuousClock.now
    private let token = Secret("t")

    private func stream() throws -> SignalStream {
        SignalStream(endpoint: try #require(HTTPAddress("https://login.example.com/poll?a=b")))
    }

    /// The body of a request.
    private func body(_ request: HTTPRequest) throws -> JSONValue {
        guard case .post(let body, "application/json") = request.method else { throw NoAddress() }
        return try JSONValue(parsing: body, limits: JSONLimits(size: 1 << 20))
    }

    private func sets(_ names: String...) -> Result<HTTPResponse, HTTPError> {
        .success(json(#"{"sets":{\#(names.map { #""\#($0)":"token""# }.joined(separator: ","))}}"#))
    }

    private func at(_ seconds: Double) -> ContinuousClock.Instant { start + .seconds(seconds) }

    @Test("a request waits for events, hides its token, and repeats acknowledgements")
    func acknowledges() throws {
        var stream = try stream()
        let first = stream.question(token, at: at(0))
        #expect(try body(first)["returnImmediately"] == .boolean(false) && body(first)["ack"] == nil)
        #expect(first.fields["Authorization"] == "Bearer t" && "\(first)" == "POST https://login.example.com/poll")
        guard case .tokens(let tokens) = stream.handle(sets("a", "b", "c"), at: at(9)) else { throw NoAddress() }
        #expect(tokens.map(\.identifier) == ["a", "b", "c"])
        stream.settle("a", .taken)
        stream.settle("b", .refused(.invalidKey, "why"))
        stream.settle("c", .later("not now"))
        #expect(stream.pause == .seconds(5))
        for _ in 1...2 {
            let next = try body(stream.question(token, at: at(20)))
            #expect(next["ack"] == .array([.string("a")]))
            #expect(next["setErrs"]?["b"]?["err"] == .string("invalid_key") && next["setErrs"]?.object?.count == 1)
            _ = stream.handle(.success(json("", status: 503)), at: at(21))
        }
        _ = stream.question(token, at: at(30))
        #expect(stream.handle(sets(), at: at(50)) == .quiet)
        #expect(try body(stream.question(token, at: at(51)))["ack"] == nil)
    }

    @Test("polls pause for a second, 15 s or Retry-After, until the network changes")
    func pauses() throws {
        var stream = try stream()
        _ = stream.question(token, at: at(0))
        _ = stream.handle(sets("a"), at: at(0.25))
        #expect(stream.pause == .seconds(0.75))
        _ = stream.question(token, at: at(1))
        _ = stream.handle(sets(), at: at(2))
        #expect(stream.pause == .seconds(14))
        _ = stream.question(token, at: at(20))
        _ = stream.handle(sets(), at: at(40))
        #expect(stream.pause == .zero)
        // A network change ends all pauses; Retry-After counts up to five minutes.
        var other = try self.stream()
        _ = other.question(token, at: at(0))
        _ = other.handle(failure(.timedOut), at: at(45))
        _ = other.handle(.success(json("", status: 429, fields: ["retry-after": "100"])), at: at(46))
        #expect(other.pause == .seconds(100))
        other.wake()
        #expect(other.pause == .zero)
        #expect(try body(other.question(token, at: at(47)))["returnImmediately"] == .boolean(false))
        #expect(other.handle(failure(.cancelled), at: at(48)) == .interrupted && other.pause == .zero)
    }

    @Test("after a timeout the stream polls without waiting, and failures back off")
    func hangs() throws {
        var stream = try stream()
        let long = stream.question(token, at: at(0))
        #expect(long.limits.total == .seconds(45))
        #expect(stream.handle(failure(.timedOut), at: at(45)) == .quiet && stream.pause == .zero)
        let short = stream.question(token, at: at(45))
        #expect(try body(short)["returnImmediately"] == .boolean(true) && short.limits.total == .seconds(10))
        for pause in [5, 10, 20, 40, 80, 160, 300, 300] {
            guard case .failed(let text) = stream.handle(failure(.timedOut), at: at(60)), text.contains("in time")
            else { throw NoAddress() }
            #expect(stream.pause == .seconds(pause))
        }
        // After many immediate responses, a request waits again.
        for number in 1...60 {
            _ = stream.question(token, at: at(Double(100 + number)))
            _ = stream.handle(sets(), at: at(Double(100 + number)))
        }
        #expect(try body(stream.question(token, at: at(500)))["returnImmediately"] == .boolean(false))
    }

    @Test("a response without tokens is a failure; one that is too large lowers the number")
    func nonsense() throws {
        let deep = #"{"sets":\#(String(repeating: "[", count: 100) + String(repeating: "]", count: 100))}"#
        for (answer, reason) in [
            (json("", status: 503), "503"), (json("", status: 404), "404"), (json("<html>"), "JSON"),
            (json(deep), "JSON"), (json("{}"), "“sets”"), (json(#"{"sets":[]}"#), "“sets”"),
            (json(#"{"sets":{"a":7}}"#), "invalid token"),
        ] {
            var stream = try stream()
            _ = stream.question(token, at: at(0))
            let step = stream.handle(.success(answer), at: at(1))
            guard case .failed(let text) = step, text.contains(reason) else {
                Issue.record("\(reason): \(step)")
                continue
            }
        }
        // After a response that is too large, fewer events are requested.
        var stream = try stream()
        #expect(try body(stream.question(token, at: at(0)))["maxEvents"] == .number(25))
        for most in [12, 6, 3, 1, 1] {
            _ = stream.handle(failure(.tooLarge(1 << 20)), at: at(1))
            #expect(try body(stream.question(token, at: at(2)))["maxEvents"] == .number(Double(most)))
        }
        guard case .failed = stream.handle(sets("a", "b"), at: at(3)) else { throw NoAddress() }
    }
}
