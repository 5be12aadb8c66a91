package import HTTPClient
package import Identity
package import StrictJSON

/// A stream of events at the provider, which is asked for them (RFC 8936): what is asked next, and when. A value that decides; somebody else asks, checks
/// the tokens and waits.
///
/// A question waits at the provider until there is an event. Where that takes longer than this side waits, it is not known whether the provider waits or
/// hangs: then it is asked again and again, and answers at once or has failed.
package struct SignalStream: Sendable {
    /// How many tokens one answer may have.
    package static let mostTokens = 25
    /// Of an answer, in bytes.
    package static let longestAnswer = 1 << 20
    /// How long a question waits for an event, and how long one is given that does not wait.
    static let (longestWait, patience): (Duration, Duration) = (.seconds(45), .seconds(10))
    /// Between two questions after which there was nothing, where they do not wait.
    static let quietPause: Duration = .seconds(15)
    /// Between the beginnings of any two questions: a provider that has events without end gets no more of this process.
    static let shortestPause: Duration = .seconds(1)
    /// After failures, one after the other; the last one counts for all later ones.
    static let pauses: [Duration] = [5, 10, 20, 40, 80, 160, 300].map { .seconds($0) }
    /// After so many questions that did not wait, one waits again.
    static let shortQuestions = 40

    /// A token that came, and nobody has looked at.
    package struct Received: Sendable, Hashable {
        /// The provider's name for it, which is to be its `jti`.
        package let identifier: String
        package let token: String
    }

    /// What an answer means.
    package enum Step: Sendable, Hashable {
        /// Each of them is to be settled.
        case tokens([Received])
        case quiet
        /// The question was ended here.
        case interrupted
        /// The provider does not take this device's token.
        case unauthorised(status: Int)
        /// In the words of an administrator.
        case failed(String)
    }

    /// What has become of a token.
    package enum Settlement: Sendable, Hashable {
        /// It is acknowledged: everything follows from it that has to.
        case taken
        /// The provider is told why.
        case refused(Refusal, String)
        /// It is to come again.
        case later(String)
    }

    /// RFC 8935, section 2.4.
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
    private var pause = Duration.zero

    package init(endpoint: HTTPAddress) { self.endpoint = endpoint }

    // MARK: Asking

    /// The next question. It acknowledges what was settled since the last one.
    ///
    /// - Parameter token: this device's, for the stream.
    package mutating func question(_ token: Secret, at now: ContinuousClock.Instant) -> HTTPRequest {
        begun = now
        if !waits { shortQuestions += 1 }
        var members: [String: JSONValue] = [
            "maxEvents": .number(most), "returnImmediately": .boolean(!waits),
        ]
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

    /// A question that brings and acknowledges nothing: whether the provider answers.
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

    // MARK: What comes back

    /// What the answer to the last question means.
    package mutating func handle(
        _ result: Result<HTTPResponse, HTTPError>,
        at now: ContinuousClock.Instant
    ) -> Step {
        switch result {
        case .success(let response) where response.status == 200:
            switch Self.tokens(in: response, most: most) {
            case .failure(let flaw): return fail(flaw.text)
            case .success(let tokens): return take(tokens, at: now)
            }
        case .success(let response):
            if response.status == 401 || response.status == 403 { return .unauthorised(status: response.status) }
            let step = fail("\(endpoint) answers with status \(response.status)")
            pause = max(pause, response.retryAfter ?? .zero)
            return step
        case .failure(let error):
            switch error.reason {
            case .cancelled:
                pause = .zero
                return .interrupted
            // Whether it waits longer than this side does, or hangs, the next question shows.
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
        // The provider has heard what the question acknowledged.
        (acknowledged, refused) = ([], [:])
        failures = 0
        let passed = begun.map { now - $0 } ?? .zero
        pause = max(.zero, Self.shortestPause - passed)
        guard tokens.isEmpty else { return .tokens(tokens) }
        // One that was to wait and did not has nothing against being asked too often; this side has.
        if !waits || passed < Self.patience / 2 { pause = max(pause, Self.quietPause - passed) }
        if shortQuestions >= Self.shortQuestions { (waits, shortQuestions) = (true, 0) }
        return .quiet
    }

    /// What is wrong with an answer.
    package struct Flaw: Error, Sendable {
        package let text: String
    }

    /// The tokens of an answer (RFC 8936, section 2.3).
    package static func tokens(in response: HTTPResponse, most: Int = mostTokens) -> Result<[Received], Flaw> {
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONValue(
                parsing: response.body,
                limits: JSONLimits(size: longestAnswer, depth: 4, values: 1000)
            )
        } catch {
            return .failure(Flaw(text: "the stream's answer is not JSON: \(error)"))
        }
        guard let sets = json["sets"]?.object else { return .failure(Flaw(text: "the stream's answer has no “sets”")) }
        guard sets.count <= max(most, 0) else {
            return .failure(Flaw(text: "the stream's answer has more tokens than were asked for (\(sets.count))"))
        }
        var tokens: [Received] = []
        for (identifier, value) in sets.sorted(by: { $0.key < $1.key }) {
            guard (1...255).contains(identifier.utf8.count), let token = value.string else {
                return .failure(Flaw(text: "the stream's answer has what is no token"))
            }
            tokens.append(Received(identifier: identifier, token: token))
        }
        return .success(tokens)
    }

    /// A token of the last answer is settled. After one that is to come again, the others of the answer are, too.
    package mutating func settle(_ identifier: String, _ settlement: Settlement) {
        switch settlement {
        case .taken: acknowledged.append(identifier)
        case .refused(let reason, let text): refused[identifier] = (reason, text)
        case .later: _ = fail("")
        }
    }

    // MARK: Time

    /// The question could not be asked, or its answer brings nothing.
    @discardableResult
    package mutating func fail(_ text: String) -> Step {
        pause = Self.pauses[min(failures, Self.pauses.count - 1)]
        failures += 1
        return .failed(text)
    }

    /// How long nobody asks now.
    package var rest: Duration { pause }

    /// There is a reason to believe that the provider can be asked.
    package mutating func wake() { (failures, waits, shortQuestions, pause) = (0, true, 0, .zero) }
}
