import Basics
import BrokerCore
import DBus
import FoundationEssentials
import Identity
@_spi(Extensions) import SharedDevice

/// The secrets of a request, which the message no longer contains.
struct SecretFields: Sendable {
    var password: Secret?
    var badge: Secret?
    var pin: Secret?

    static func taken(from call: borrowing DBusMessage) -> SecretFields {
        SecretFields(
            password: call.takeText("password") { Secret(bytes: $0) },
            badge: call.takeText("badge") { Secret(bytes: $0) },
            pin: call.takeText("pin") { Secret(bytes: $0) }
        )
    }
}

/// The typed and bounded fields of a request from another process.
struct RequestFields {
    /// The longest time that a request may wait for a change, in seconds.
    static let longestWait = 60.0
    /// The longest accepted list of scopes, in bytes.
    static let longestScopes = 8192
    /// The longest query of a browser's redirect, in bytes.
    static let longestQuery = 8192
    /// The longest claims, in bytes. They become part of the address of the provider's page.
    static let longestClaims = 4096
    /// The maximum of provider events in one call.
    static let mostEvents = 100
    /// The longest text for the log, in Unicode scalars.
    static let longestWords = 500
    /// The maximum of log entries in a response, and the default.
    static let (mostEntries, entries) = (500, 100)

    private let fields: BrokerProtocol.Fields
    private let secrets: SecretFields

    init(_ fields: BrokerProtocol.Fields, _ secrets: SecretFields?) {
        (self.fields, self.secrets) = (fields, secrets ?? SecretFields())
    }

    func text(_ key: String) -> String? { fields[key]?.stringValue }

    func required(_ key: String) throws(Refusal) -> String {
        guard let value = fields[key] else { throw .missing(key) }
        guard let text = value.stringValue else {
            throw .malformed(key, "is \(value.forPeople), and has to be a string")
        }
        return text
    }

    func words(_ key: String) -> String? { text(key)?.printable(Self.longestWords) }

    /// A non-negative number of any integer type; `nil` if the field is absent.
    func number(_ key: String) throws(Refusal) -> UInt64? {
        guard let value = fields[key] else { return nil }
        guard let number = value.wholeNumber else {
            let wanted = "a whole number that is not negative, of any integer type"
            throw .malformed(key, "is \(value.forPeople), and has to be \(wanted)")
        }
        return number
    }

    /// A user's number; `nil` if the field is absent.
    func user() throws(Refusal) -> UInt32? {
        guard let number = try number("user") else { return nil }
        guard let user = UInt32(exactly: number) else {
            throw .malformed("user", "is too large, and has to be a user's number (uid)")
        }
        return user
    }

    /// An array of numbers; `nil` if the field is absent or has another type.
    func numbers(_ key: String) -> Set<UInt64>? {
        guard case .array(let elements, of: "t")? = fields[key] else { return nil }
        return Set(elements.compactMap(\.unsignedValue))
    }

    /// A field that has to be one of these words.
    func word<Word: RawRepresentable>(_ key: String, _ words: [Word]) throws(Refusal) -> Word
    where Word.RawValue == String {
        guard let value = fields[key] else { throw .missing(key) }
        guard let word = words.first(where: { $0.rawValue == value.stringValue }) else {
            let names = words.map { "“\($0.rawValue)”" }.joined(separator: ", ")
            let kind = value.stringValue == nil ? value.forPeople : "an unknown word"
            throw .malformed(key, "is \(kind), and has to be one of \(names)")
        }
        return word
    }

    func flag(_ key: String) -> Bool { fields[key]?.booleanValue ?? false }

    /// The name that an app gives a sign-in in order to cancel it.
    func label() throws(Refusal) -> String? {
        guard let label = text("request") else { return nil }
        guard label.utf8.count <= 64 else { throw .malformed("request", "is longer than 64 bytes") }
        return label
    }

    func promptName() throws(Refusal) -> String {
        guard let name = try label() else { throw .missing("request") }
        return name
    }

    /// A text of at most `bytes` bytes; `nil` if the field is absent.
    func text(_ key: String, atMost bytes: Int) throws(Refusal) -> String? {
        guard fields[key] != nil else { return nil }
        let text = try required(key)
        guard text.utf8.count <= bytes else { throw .malformed(key, "is longer than \(bytes) bytes") }
        return text
    }

    func promptWish() throws(Refusal) -> Request.PromptWish {
        var wish = Request.PromptWish()
        if let methods = fields["methods"] {
            // Unknown methods come from later versions and are ignored.
            guard let names = methods.stringsValue else { throw .malformed("methods", "has to be an array of strings") }
            wish.methods = names.prefix(16).compactMap(BrokerProtocol.SignInMethod.init)
            guard !wish.methods.isEmpty else { throw .malformed("methods", "has none of the known methods") }
        }
        wish.redirect = try text("redirectURI", atMost: 256)
        if let redirect = wish.redirect, !SignInStart.isLoopback(redirect) {
            throw .malformed("redirectURI", "has to be http://127.0.0.1:PORT/callback")
        }
        wish.loginHint = try text("loginHint", atMost: longestUsername)
        wish.scopes = try scopes()
        wish.patience = try patience()
        wish.asksAgain = flag("again")
        wish.claims = try claims()
        wish.app = try text("app", atMost: 255)
        return wish
    }

    private func claims() throws(Refusal) -> String? {
        guard let text = try text("claims", atMost: Self.longestClaims) else { return nil }
        guard case .object? = try? JSONValue(parsing: Array(text.utf8), limits: JSONLimits(size: Self.longestClaims))
        else { throw .malformed("claims", "has to be a JSON object (OpenID Connect Core 1.0, section 5.5)") }
        return text
    }

    func providerEvents() throws(Refusal) -> [ProviderEvent] {
        guard case .array(let elements, of: "a{sv}")? = fields["events"], elements.count <= Self.mostEvents else {
            throw .malformed("events", "has to be an array of at most \(Self.mostEvents) dictionaries")
        }
        return elements.compactMap { element in
            let event = element.fieldsValue ?? [:]
            // Unknown kinds come from later versions and are ignored.
            guard let kind = event["kind"]?.stringValue.flatMap(ProviderEvent.Kind.init),
                let issuer = event["issuer"]?.stringValue
            else { return nil }
            var date: Date?
            if case .double(let seconds)? = event["time"], abs(seconds) < 1e11 {
                date = Date(timeIntervalSince1970: seconds)
            }
            let (subject, session) = (event["subject"]?.stringValue, event["session"]?.stringValue)
            return ProviderEvent(kind, issuer: issuer, subject: subject, session: session, date: date)
        }
    }

    func promptAnswer() throws(Refusal) -> Request.PromptAnswer {
        if let query = try text("query", atMost: Self.longestQuery) { return .query(query) }
        return .password(try credentials())
    }

    /// The input of a person who signs in: a badge and a PIN, or a name and a password or PIN.
    func credentials() throws(Refusal) -> SignInRequest {
        if secrets.password != nil, secrets.badge != nil || secrets.pin != nil {
            throw .malformed("password", "goes together with neither a badge nor a PIN")
        }
        switch (secrets.badge, secrets.pin) {
        case (let number?, let pin?): return .badge(number: number, pin: pin)
        case (_?, nil): throw .missing("pin")
        case (nil, let pin?): return .pin(username: try required("username"), pin)
        case (nil, nil): return try passwordCredentials()
        }
    }

    /// The name and password of an administrator.
    func passwordCredentials() throws(Refusal) -> SignInRequest {
        SignInRequest(username: try required("username"), password: secrets.password)
    }

    func scopes() throws(Refusal) -> Set<String> {
        guard let value = fields["scopes"] else { return [] }
        // Tokens are cached by their scopes, which must not fill the memory.
        guard let scopes = value.stringsValue, scopes.reduce(0, { $0 + $1.utf8.count + 1 }) <= Self.longestScopes else {
            throw .malformed("scopes", "has to be an array of strings with at most \(Self.longestScopes) bytes")
        }
        return Set(scopes)
    }

    /// The apps whose cleanup the enforcement program has in progress.
    func underWay() throws(Refusal) -> Set<Participant> {
        guard let value = fields["underWay"] else { return [] }
        guard case .array(let elements, of: "a{sv}") = value, elements.count <= OverdueApp.most else {
            throw .malformed("underWay", "has to be an array of at most \(OverdueApp.most) dictionaries")
        }
        var apps: Set<Participant> = []
        for element in elements {
            let fields = RequestFields(element.fieldsValue ?? [:], nil)
            guard let user = try fields.user() else { throw .missing("user") }
            apps.insert(Participant(app: try fields.required("app"), user: user))
        }
        return apps
    }

    func patience() throws(Refusal) -> Duration { min(try span("wait") ?? .zero, .seconds(Self.longestWait)) }

    /// A number of seconds, at most a day; `nil` if the field is absent.
    func span(_ key: String) throws(Refusal) -> Duration? {
        guard let value = fields[key] else { return nil }
        let number: Double? =
            if case .double(let seconds) = value { seconds } else { value.wholeNumber.map { Double($0) } }
        guard let seconds = number, seconds >= 0 else {
            throw .malformed(key, "is \(value.forPeople), and has to be a number of seconds that is not negative")
        }
        return .seconds(min(seconds, 86_400))
    }
}

extension Request.Call {
    /// - Throws: ``Refusal`` if a field is missing or has the wrong type.
    init(_ method: BrokerProtocol.Method, _ fields: RequestFields) throws(Refusal) {
        switch method {
        case .getDeviceInformation: self = .deviceInformation
        case .getCurrentAccount: self = .currentAccount
        case .signIn:
            let credentials = try fields.credentials()
            let (scopes, patience, label) = (try fields.scopes(), try fields.patience(), try fields.label())
            self = .signIn(credentials, scopes: scopes, patience: patience, label: label)
        case .beginSignIn: self = .beginSignIn(try fields.promptWish())
        case .completeSignIn: self = .completeSignIn(name: try fields.promptName(), try fields.promptAnswer())
        case .awaitSignIn: self = .awaitSignIn(name: try fields.promptName(), patience: try fields.patience())
        case .cancelSignIn: self = .cancelSignIn(label: try fields.promptName())
        case .acquireTokenSilently:
            self = .acquireToken(
                identifier: try fields.required("accountIdentifier"),
                scopes: try fields.scopes(),
                refresh: fields.flag("forceRefresh"),
                session: try fields.number("session"),
                maximumAge: try fields.span("maximumAge")
            )
        case .signOut:
            self = .signOut(identifier: try fields.required("accountIdentifier"), session: try fields.number("session"))
        case .reportCleanup:
            guard let session = try fields.number("session") else { throw .missing("session") }
            self = .report(
                try fields.word("progress", [.begun, .failed, .finished]),
                session: session,
                mark: try fields.number("mark") ?? 0,
                took: try fields.span("took"),
                detail: fields.words("detail")
            )
        case .getRound:
            self = .round(
                session: try fields.number("session"),
                after: try fields.number("revision"),
                awaitsEnd: fields.flag("awaitsEnd"),
                patience: try fields.patience(),
                isAdministration: fields.flag("administration")
            )
        case .reportActivity: self = .activity
        case .getScreen:
            let content = try fields.word("shows", ScreenContent.allCases)
            self = .screen(shows: content, known: try fields.number("revision"), patience: try fields.patience())
        case .reportProviderEvents: self = .providerEvents(try fields.providerEvents())
        case .join: self = .join(try fields.passwordCredentials())
        case .leave: self = .leave(try fields.passwordCredentials())
        case .signOutAnyone:
            let (session, reason) = (try fields.number("session"), fields.words("reason") ?? "an administrator")
            self = .signOutAnyone(identifier: fields.text("accountIdentifier"), session: session, reason: reason)
        case .waive:
            guard let reason = fields.words("reason"), !reason.isEmpty else { throw .missing("reason") }
            let (app, user) = (try fields.required("app"), try fields.user())
            self = .waive(app: app, user: user, session: try fields.number("session"), reason: reason)
        case .forgetAccount: self = .forgetAccount(identifier: try fields.required("accountIdentifier"))
        case .getRunningApps: self = .runningApps
        case .getStatus: self = .status(known: try fields.number("revision"), patience: try fields.patience())
        case .getLog:
            let after = try fields.number("after").map { Int64(clamping: $0) }
            let limit = try fields.number("limit").map { Int(clamping: $0) } ?? RequestFields.entries
            guard (1...RequestFields.mostEntries).contains(limit) else {
                throw .malformed("limit", "has to be a number from 1 to \(RequestFields.mostEntries)")
            }
            self = .log(after: after, limit: limit, patience: try fields.patience())
        case .getOverdue: self = .overdue(underWay: try fields.underWay(), patience: try fields.patience())
        case .reportEnforcement:
            guard let user = try fields.user() else { throw .missing("user") }
            guard let sessions = fields.numbers("sessions") else { throw .missing("sessions") }
            self = .enforced(
                app: try fields.required("app"),
                user: user,
                sessions: sessions,
                detail: fields.words("detail"),
                problem: fields.words("problem")
            )
        }
    }
}

extension DBusValue {
    /// The value of any integer type; `nil` for another type or a negative number.
    fileprivate var wholeNumber: UInt64? {
        switch self {
        case .int16(let value): UInt64(exactly: value)
        case .int32(let value): UInt64(exactly: value)
        case .int64(let value): UInt64(exactly: value)
        default: unsignedValue
        }
    }

    /// The value's kind, for the sender and the log; without the text of a string, which may name a person.
    fileprivate var forPeople: String {
        switch self {
        case .string: "a string"
        case .int16, .int32, .int64, .byte, .uint16, .uint32, .uint64: "a number that is out of place"
        default: "of the D-Bus type \(signature)"
        }
    }
}
