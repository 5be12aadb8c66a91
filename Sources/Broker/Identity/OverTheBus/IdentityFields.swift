public import DBus
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// A dictionary of the protocol. It comes from another process, so the type of each value is checked.
public typealias IdentityFields = [String: DBusValue]

extension IdentityFields {
    private func read<Result>(_ key: String, _ read: (DBusValue) -> Result?) throws(IdentityError) -> Result {
        guard let result = self[key].flatMap(read) else { throw .malformed(key) }
        return result
    }

    func text(_ key: String) throws(IdentityError) -> String {
        try read(key) { if case .string(let text) = $0 { text } else { nil } }
    }

    /// `nil` if the key is absent.
    func optionalText(_ key: String) throws(IdentityError) -> String? { self[key] == nil ? nil : try text(key) }

    func texts(_ key: String) throws(IdentityError) -> Set<String> { Set(try read(key, \.stringsValue)) }

    func flag(_ key: String) throws(IdentityError) -> Bool { try read(key, \.booleanValue) }

    func number(_ key: String) throws(IdentityError) -> Double {
        try read(key) { if case .double(let number) = $0, number.isFinite, abs(number) < 1e12 { number } else { nil } }
    }

    func fields(_ key: String) throws(IdentityError) -> IdentityFields { try read(key, \.fieldsValue) }

    /// The case of an enumeration.
    func word<Word: RawRepresentable>(_ key: String) throws(IdentityError) -> Word where Word.RawValue == String {
        guard let word = Word(rawValue: try text(key)) else { throw .malformed(key) }
        return word
    }
}

// MARK: Requests

extension SignInStart {
    public var fields: IdentityFields {
        var fields: IdentityFields = ["method": .string(method.rawValue), "scopes": .strings(scopes)]
        fields["redirect"] = redirect.map { .string($0) }
        fields["loginHint"] = loginHint.map { .string($0) }
        fields["claims"] = claims.map { .string($0) }
        fields["onlyIssuer"] = only.map { .string($0.issuer) }
        fields["onlySubject"] = only.map { .string($0.subject) }
        return fields
    }

    public init(_ fields: IdentityFields) throws(IdentityError) {
        let issuer = try fields.optionalText("onlyIssuer")
        let only: ProviderRecord.Person? =
            if let issuer { .init(issuer: issuer, subject: try fields.text("onlySubject")) } else { nil }
        self.init(
            try fields.word("method"),
            redirect: try fields.optionalText("redirect"),
            loginHint: try fields.optionalText("loginHint"),
            scopes: try fields.texts("scopes"),
            claims: try fields.optionalText("claims"),
            only: only
        )
    }
}

extension ProviderRecord {
    public var fields: IdentityFields {
        var fields: IdentityFields = [
            "issuer": .string(person.issuer), "subject": .string(person.subject),
            // A copy that is not wiped, for the message.
            "content": .bytes(content.withBytes { Array($0) }),
        ]
        fields["session"] = session.map { .string($0) }
        return fields
    }

    public init(_ fields: IdentityFields) throws(IdentityError) {
        guard let content = fields["content"]?.bytesValue, content.count <= Self.longestContent else {
            throw .malformed("content")
        }
        self.init(
            person: Person(issuer: try fields.text("issuer"), subject: try fields.text("subject")),
            session: try fields.optionalText("session"),
            content: Secret(bytes: content)
        )
    }
}

// MARK: Responses

extension BegunSignIn {
    public var fields: IdentityFields {
        var fields: IdentityFields = ["handle": .string(handle), "lifetime": .double(lifetime / .seconds(1))]
        switch prompt {
        case .browser(let address): fields["address"] = .string(address)
        case .deviceCode(let code, let address, let complete):
            fields["code"] = .string(code)
            fields["address"] = .string(address)
            fields["completeAddress"] = complete.map { .string($0) }
        }
        return fields
    }

    public init(_ fields: IdentityFields) throws(IdentityError) {
        let address = try fields.text("address")
        let prompt: Prompt =
            if let code = try fields.optionalText("code") {
                .deviceCode(code: code, address: address, completeAddress: try fields.optionalText("completeAddress"))
            } else {
                .browser(address: address)
            }
        self.init(handle: try fields.text("handle"), prompt: prompt, lifetime: .seconds(try fields.number("lifetime")))
    }
}

extension AccessToken {
    var fields: IdentityFields {
        var fields: IdentityFields = [
            "value": .string(value), "scopes": .strings(scopes), "expiresAt": .double(expiresAt.timeIntervalSince1970),
        ]
        fields["idToken"] = identity.map { .string($0.text) }
        fields["idTokenScopes"] = identity.map { .strings($0.scopes) }
        return fields
    }

    init(_ fields: IdentityFields) throws(IdentityError) {
        let text = try fields.optionalText("idToken")
        let identity: IdentityToken? =
            if let text { IdentityToken(text: text, granted: try fields.texts("idTokenScopes")) } else { nil }
        self.init(
            value: try fields.text("value"),
            scopes: try fields.texts("scopes"),
            expiresAt: Date(timeIntervalSince1970: try fields.number("expiresAt")),
            identity: identity
        )
    }
}

extension ProviderSignIn {
    public var fields: IdentityFields {
        var fields: IdentityFields = [
            "account": account.fields, "record": .fields(record.fields), "token": .fields(token.fields),
            "groups": .strings(groups.names),
        ]
        fields["groupsFlaw"] = groups.flaw.map { .string($0.rawValue) }
        return fields
    }

    public init(_ fields: IdentityFields) throws(IdentityError) {
        guard let account = try? Account(fields["account"]) else { throw .malformed("account") }
        self.init(
            account: account,
            record: try ProviderRecord(fields.fields("record")),
            token: try AccessToken(fields.fields("token")),
            groups: try Self.groups(fields)
        )
    }

    private static func groups(_ fields: IdentityFields) throws(IdentityError) -> PersonGroups {
        guard fields["groupsFlaw"] == nil else { return .unknown(try fields.word("groupsFlaw")) }
        guard let names = fields["groups"]?.stringsValue else { throw .malformed("groups") }
        return PersonGroups(listed: names)
    }
}

extension RenewalOutcome {
    private enum Word: String {
        case renewed, sessionOver, reauthenticationNeeded, misconfigured, scopeRefused, unavailable
    }

    public var fields: IdentityFields {
        func fields(_ word: Word, _ error: IdentityError? = nil) -> IdentityFields {
            var fields: IdentityFields = ["outcome": .string(word.rawValue)]
            fields["code"] = error.map { .string($0.code.rawValue) }
            fields["message"] = error.map { .string($0.description) }
            fields["retryAfter"] = error?.retryAfter.map { .double($0 / .seconds(1)) }
            return fields
        }
        switch self {
        case .renewed(let token, let record):
            var renewed = fields(.renewed)
            renewed["token"] = .fields(token.fields)
            renewed["record"] = record.map { .fields($0.fields) }
            return renewed
        case .sessionOver: return fields(.sessionOver)
        case .reauthenticationNeeded: return fields(.reauthenticationNeeded)
        case .misconfigured(let error): return fields(.misconfigured, error)
        case .scopeRefused: return fields(.scopeRefused)
        case .unavailable(let error, let mayBeUsed):
            var unavailable = fields(.unavailable, error)
            unavailable["mayBeUsed"] = .boolean(mayBeUsed)
            return unavailable
        }
    }

    public init(_ fields: IdentityFields) throws(IdentityError) {
        func error() throws(IdentityError) -> IdentityError {
            let wait: Duration? =
                fields["retryAfter"] == nil ? nil : .seconds(max(0, min(try fields.number("retryAfter"), 300)))
            return IdentityError(try fields.word("code"), try fields.text("message"), retryAfter: wait)
        }
        let word: Word = try fields.word("outcome")
        switch word {
        case .renewed:
            let record = fields["record"] == nil ? nil : try ProviderRecord(fields.fields("record"))
            self = .renewed(try AccessToken(fields.fields("token")), record)
        case .sessionOver: self = .sessionOver
        case .reauthenticationNeeded: self = .reauthenticationNeeded
        case .misconfigured: self = .misconfigured(try error())
        case .scopeRefused: self = .scopeRefused
        case .unavailable: self = .unavailable(try error(), mayBeUsed: try fields.flag("mayBeUsed"))
        }
    }
}

extension DBusValue {
    static func strings(_ texts: Set<String>) -> DBusValue {
        .array(texts.sorted().map { .string($0) }, of: "s")
    }
}
