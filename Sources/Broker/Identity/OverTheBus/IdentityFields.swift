public import DBus
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// A dictionary of the protocol. It comes from another process, so the type of each value is checked.
public struct IdentityFields: Sendable {
    public var values: [String: DBusValue]

    public init(_ values: [String: DBusValue] = [:]) { self.values = values }

    /// - Throws: `IdentityError` if the first argument is not a dictionary.
    public init(_ arguments: [DBusValue]) throws(IdentityError) {
        guard let values = arguments.first?.fieldsValue else { throw .malformed("request") }
        self.values = values
    }

    public var value: DBusValue { .fields(values) }

    func text(_ key: String) throws(IdentityError) -> String {
        guard let text = try optionalText(key) else { throw .malformed(key) }
        return text
    }

    /// `nil` if the key is absent.
    func optionalText(_ key: String) throws(IdentityError) -> String? {
        guard let value = values[key] else { return nil }
        guard case .string(let text) = value else { throw .malformed(key) }
        return text
    }

    func texts(_ key: String) throws(IdentityError) -> Set<String> {
        guard let texts = values[key]?.stringsValue else { throw .malformed(key) }
        return Set(texts)
    }

    func flag(_ key: String) throws(IdentityError) -> Bool {
        guard let flag = values[key]?.booleanValue else { throw .malformed(key) }
        return flag
    }

    func number(_ key: String) throws(IdentityError) -> Double {
        guard case .double(let number)? = values[key], number.isFinite, abs(number) < 1e12 else {
            throw .malformed(key)
        }
        return number
    }

    func fields(_ key: String) throws(IdentityError) -> IdentityFields {
        guard let fields = values[key]?.fieldsValue else { throw .malformed(key) }
        return IdentityFields(fields)
    }

    /// The case of an enumeration.
    func word<Word: RawRepresentable>(_ key: String, _ type: Word.Type) throws(IdentityError) -> Word
    where Word.RawValue == String {
        guard let word = Word(rawValue: try text(key)) else { throw .malformed(key) }
        return word
    }
}

// MARK: Requests

extension SignInStart {
    public var fields: IdentityFields {
        var fields = IdentityFields(["method": .string(method.rawValue), "scopes": .strings(scopes)])
        fields.values["redirect"] = redirect.map { .string($0) }
        fields.values["loginHint"] = loginHint.map { .string($0) }
        fields.values["claims"] = claims.map { .string($0) }
        fields.values["onlyIssuer"] = only.map { .string($0.issuer) }
        fields.values["onlySubject"] = only.map { .string($0.subject) }
        return fields
    }

    public init(_ fields: IdentityFields) throws(IdentityError) {
        let issuer = try fields.optionalText("onlyIssuer")
        let only: ProviderRecord.Person? =
            if let issuer { .init(issuer: issuer, subject: try fields.text("onlySubject")) } else { nil }
        self.init(
            try fields.word("method", Method.self),
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
        var fields = IdentityFields([
            "issuer": .string(person.issuer), "subject": .string(person.subject), "content": .bytes(content.copy),
        ])
        fields.values["session"] = session.map { .string($0) }
        return fields
    }

    public init(_ fields: IdentityFields) throws(IdentityError) {
        guard let content = fields.values["content"]?.bytesValue, content.count <= Self.longestContent else {
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
        var fields = IdentityFields(["handle": .string(handle), "lifetime": .double(lifetime / .seconds(1))])
        switch prompt {
        case .browser(let address): fields.values["address"] = .string(address)
        case .deviceCode(let code, let address, let complete):
            fields.values["code"] = .string(code)
            fields.values["address"] = .string(address)
            fields.values["completeAddress"] = complete.map { .string($0) }
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
        var fields = IdentityFields([
            "value": .string(value), "scopes": .strings(scopes), "expiresAt": .double(expiresAt.timeIntervalSince1970),
        ])
        fields.values["idToken"] = identity.map { .string($0.text) }
        fields.values["idTokenScopes"] = identity.map { .strings($0.scopes) }
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
        var fields = IdentityFields([
            "account": account.fields, "record": record.fields.value, "token": token.fields.value,
            "groups": .strings(groups.names),
        ])
        fields.values["groupsFlaw"] = groups.flaw.map { .string($0.rawValue) }
        return fields
    }

    public init(_ fields: IdentityFields) throws(IdentityError) {
        guard let account = try? Account(fields.values["account"]) else { throw .malformed("account") }
        self.init(
            account: account,
            record: try ProviderRecord(fields.fields("record")),
            token: try AccessToken(fields.fields("token")),
            groups: try Self.groups(fields)
        )
    }
}

extension ProviderSignIn {
    private static func groups(_ fields: IdentityFields) throws(IdentityError) -> PersonGroups {
        guard fields.values["groupsFlaw"] == nil else {
            return .unknown(try fields.word("groupsFlaw", PersonGroups.Flaw.self))
        }
        guard let names = fields.values["groups"]?.stringsValue else { throw .malformed("groups") }
        return PersonGroups(listed: names)
    }
}

extension RenewalOutcome {
    private enum Word: String {
        case renewed, sessionOver, reauthenticationNeeded, misconfigured, scopeRefused, unavailable
    }

    public var fields: IdentityFields {
        func fields(_ word: Word, _ error: IdentityError? = nil) -> IdentityFields {
            var fields = IdentityFields(["outcome": .string(word.rawValue)])
            fields.values["code"] = error.map { .string($0.code.rawValue) }
            fields.values["message"] = error.map { .string($0.description) }
            fields.values["retryAfter"] = error?.retryAfter.map { .double($0 / .seconds(1)) }
            return fields
        }
        switch self {
        case .renewed(let token, let record):
            var renewed = fields(.renewed)
            renewed.values["token"] = token.fields.value
            renewed.values["record"] = record.map { $0.fields.value }
            return renewed
        case .sessionOver: return fields(.sessionOver)
        case .reauthenticationNeeded: return fields(.reauthenticationNeeded)
        case .misconfigured(let error): return fields(.misconfigured, error)
        case .scopeRefused: return fields(.scopeRefused)
        case .unavailable(let error, let mayBeUsed):
            var unavailable = fields(.unavailable, error)
            unavailable.values["mayBeUsed"] = .boolean(mayBeUsed)
            return unavailable
        }
    }

    public init(_ fields: IdentityFields) throws(IdentityError) {
        func error() throws(IdentityError) -> IdentityError {
            let wait: Duration? =
                fields.values["retryAfter"] == nil ? nil : .seconds(max(0, min(try fields.number("retryAfter"), 300)))
            return IdentityError(
                try fields.word("code", IdentityError.Code.self),
                try fields.text("message"),
                retryAfter: wait
            )
        }
        switch try fields.word("outcome", Word.self) {
        case .renewed:
            let record = fields.values["record"] == nil ? nil : try ProviderRecord(fields.fields("record"))
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
    fileprivate static func strings(_ texts: Set<String>) -> DBusValue {
        .array(texts.sorted().map { .string($0) }, of: "s")
    }
}

extension Secret {
    /// A copy that is not wiped, for the message.
    fileprivate var copy: [UInt8] { withCString { bytes in Array(UnsafeRawBufferPointer(start: bytes, count: count)) } }
}
