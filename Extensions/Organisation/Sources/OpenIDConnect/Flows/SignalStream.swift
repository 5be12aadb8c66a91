package import Basics
package import HTTPClient
package import Identity

/// A stream of events that is polled at the provider (RFC 8936). Decides on the next request and its time. A state
/// machine; the caller sends the requests, checks the tokens and waits.
///
/// A request waits at the provider until there is an event (long polling). If it exceeds ``longestWait``, it is unclear
/// whether the provider waits or hangs. The stream then polls without waiting: such a request gets a response at once,
/// or fails.
package struct SignalStream: Sendable {
    /// The most tokens in one response.
    package static let mostTokens = 25
    /// In bytes.
    package static let longestAnswer = 1 << 20
    /// The time limits of requests with and without long polling.
    static let (longestWait, patience): (Duration, Duration) = (.seconds(45), .seconds(10))
    /// The time between two requests without events, if they do not wait.
    static let quietPause: Duration = .seconds(15)
    /// The time between the beginnings of any two requests. It limits the load from a provider with endless events.
    static let shortestPause: Duration = .seconds(1)
    /// The pauses after consecutive failures. The last one applies to all later failures.
    static let pauses: [Duration] = [5, 10, 20, 40, 80, 160, 300].map { .seconds($0) }
    /// The number of requests without waiting after which one waits again.
    static let shortQuestions = 40

    /// A token that was delivered and is not checked yet.
    package struct Received: Sendable, Hashable {
        /// The provider's identifier for it, which should be its `jti`.
        package let identifier: String
        package let token: String
    }

    /// The meaning of a response.
    package enum Step: Sendable, Hashable {
        /// Each of them has to be settled.
        case tokens([Received])
        case quiet
        /// The request was cancelled on this side.
        case interrupted
        /// The provider rejects this device's token.
        case unauthorised(status: Int)
        /// The reason is for an administrator to read.
        case failed(String)
    }

    /// The result for a token.
    package enum Settlement: Sendable, Hashable {
        /// To be acknowledged: all its effects have happened.
        case taken
        /// To be reported to the provider, with the reason.
        case refused(Refusal, String)
        /// To be delivered again.
        case later(String)
    }

    /// The error codes of RFC 8935, section 2.4.
    package enum Refusal: String, Sendable {
        case invalidRequest = "invalid_request"
        case invalidKey = "invalid_key"
        case invalidIssuer = "invalid_issuer"
        case invalidAudience = "invalid_audience"
    }

    private let endpoint: HTTPAddress
    private var acknowledged: [String] = []
    private var refused: [String: (Refusal, String)] = [:]
    private var most = mostTokens
    private var waits = true
    private var shortQuestions = 0
    private var failures = 0
    private var begun: ContinuousClock.Instant?
    /// The time until the next request.
    package private(set) var pause = Duration.zero

    package init(endpoint: HTTPAddress) { self.endpoint = endpoint }

    // MARK: Requests

    /// The next request. It acknowledges the tokens settled since the last one.
    package mutating func question(_ token: Secret, at now: ContinuousClock.Instant) -> HTTPRequest {
        begun = now
        if !waits { shortQuestions += 1 }
        var members: [String: JSONValue] = ["maxEvents": .number(most), "returnImmediately": .boolean(!waits)]
        if !acknowledged.isEmpty { members["ack"] = .array(acknowledged.map { .string($0) }) }
        if !refused.isEmpty {
            members["setErrs"] = .object(
                refused.mapValues { reason, text in
                    .object(["err": .string(reason.rawValue), "description": .string(text.printable(200))])
                }
            )
        }
        return Self.request(endpoint, token, members, patience: waits ? Self.longestWait : Self.patience)
    }

    /// A request that asks for no events and acknowledges none. It tests whether the provider responds.
    package static func trial(_ endpoint: HTTPAddress, _ token: Secret) -> HTTPRequest {
        request(endpoint, token, ["maxEvents": .number(0), "returnImmediately": .boolean(true)], patience: patience)
    }

    private static func request(
        _ endpoint: HTTPAddress,
        _ token: Secret,
        _ members: [String: JSONValue],
        patience: Duration
    ) -> HTTPRequest {
        HTTPRequest(
            endpoint,
            .post(Array(JSONValue.object(members).text.utf8), contentType: "application/json"),
            fields: ["Accept": "application/json", "Authorization": "Bearer \(token.text)"],
            limits: HTTPLimits(total: patience, size: longestAnswer)
        )
    }

    // MARK: Responses

    /// The meaning of the response to the last request.
    package mutating func handle(_ result: Result<HTTPResponse, HTTPError>, at now: ContinuousClock.Instant) -> Step {
        switch result {
        case .success(let response) where response.status == 200:
            do throws(Problem) {
                return take(try Self.tokens(in: response, most: most), at: now)
            } catch {
                return fail(error.description)
            }
        case .success(let response):
            if response.status == 401 || response.status == 403 { return .unauthorised(status: response.status) }
            let step = fail("\(endpoint) responds with status \(response.status)")
            pause = max(pause, response.retryAfter ?? .zero)
            return step
        case .failure(let error):
            switch error.reason {
            case .cancelled:
                pause = .zero
                return .interrupted
            // The next request shows whether the provider waits longer than this side, or hangs.
            case .timedOut where waits:
                (waits, shortQuestions, pause) = (false, 0, .zero)
                return .quiet
            case .tooLarge:
                most = max(1, most / 2)
                return fail(error.description)
            default: return fail(error.description)
            }
        }
    }

    private mutating func take(_ tokens: [Received], at now: ContinuousClock.Instant) -> Step {
        // The provider has processed the acknowledgements of the request.
        (acknowledged, refused) = ([], [:])
        failures = 0
        let passed = begun.map { now - $0 } ?? .zero
        pause = max(.zero, Self.shortestPause - passed)
        guard tokens.isEmpty else { return .tokens(tokens) }
        // Limits the requests even if the provider responds at once although it should wait, to spare this device.
        if !waits || passed < Self.patience / 2 { pause = max(pause, Self.quietPause - passed) }
        if shortQuestions >= Self.shortQuestions { (waits, shortQuestions) = (true, 0) }
        return .quiet
    }

    /// The tokens of a response (RFC 8936, section 2.3).
    ///
    /// - Throws: The reason why the response is malformed.
    package static func tokens(in response: HTTPResponse, most: Int = mostTokens) throws(Problem) -> [Received] {
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONValue(
                parsing: response.body,
                limits: JSONLimits(size: longestAnswer, depth: 4, values: 1000)
            )
        } catch {
            throw Problem("the stream's response is not JSON: \(error)")
        }
        guard let sets = json["sets"]?.object else {
            throw Problem("the stream's response has no “sets”")
        }
        guard sets.count <= max(most, 0) else {
            throw Problem("the stream's response has more tokens than were requested (\(sets.count))")
        }
        var tokens: [Received] = []
        for (identifier, value) in sets.sorted(by: { $0.key < $1.key }) {
            guard (1...255).contains(identifier.utf8.count), let token = value.string else {
                throw Problem("the stream's response contains an invalid token")
            }
            tokens.append(Received(identifier: identifier, token: token))
        }
        return tokens
    }

    /// Settles a token of the last response. If one is to be delivered again, so are the tokens after it.
    package mutating func settle(_ identifier: String, _ settlement: Settlement) {
        switch settlement {
        case .taken: acknowledged.append(identifier)
        case .refused(let reason, let text): refused[identifier] = (reason, text)
        case .later: _ = fail("")
        }
    }

    // MARK: Time

    /// The request could not be sent, or its response is unusable. Sets the pause.
    @discardableResult
    package mutating func fail(_ text: String) -> Step {
        pause = Self.pauses[min(failures, Self.pauses.count - 1)]
        failures += 1
        return .failed(text)
    }

    /// Ends the pause, because the provider may be reachable again.
    package mutating func wake() { (failures, waits, shortQuestions, pause) = (0, true, 0, .zero) }
}
