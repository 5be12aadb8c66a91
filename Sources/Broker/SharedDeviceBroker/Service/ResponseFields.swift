import Basics
package import BrokerCore
import DBus
import DeviceConfiguration
import FoundationEssentials
import Identity
@_spi(Extensions) package import SharedDevice

// The responses as dictionaries of the protocol. Absent values have no key.

extension Response {
    package var fields: BrokerProtocol.Fields {
        switch self {
        case .done: [:]
        case .device(let device): device.fields
        case .session(let answer): answer.fields
        case .prompt(let prompt): prompt.fields
        case .pending: ["pending": .boolean(true), "interval": .pollPause]
        case .signedIn(let username, let epoch): ["username": .string(username), "epoch": .uint64(epoch)]
        case .grant(let grant): grant.fields
        case .signedOut(let end): end.fields
        case .again: ["again": .boolean(true)]
        case .round(let round): round.fields
        case .waived(let sessions): ["sessions": .numbers(sessions)]
        case .joined(let tenant): ["tenant": .string(tenant)]
        case .runningApps(let apps): apps.fields
        case .status(let status): status.fields
        case .log(let lines): ["entries": .array(lines.map { .fields($0.fields) }, of: "a{sv}")]
        case .overdue(let apps): ["overdue": .array(apps.map { .fields($0.fields) }, of: "a{sv}")]
        case .screen(let answer): answer.fields
        case .stillConnected(let connections): ["connections": .strings(connections)]
        }
    }
}

extension DBusValue {
    fileprivate static var pollPause: DBusValue { .double(BegunPrompt.pollPause / .seconds(1)) }
    fileprivate static func strings(_ texts: [String]) -> DBusValue { .array(texts.map { .string($0) }, of: "s") }
    fileprivate static func numbers(_ numbers: [UInt64]) -> DBusValue { .array(numbers.map { .uint64($0) }, of: "t") }
    fileprivate static func time(_ date: Date) -> DBusValue { .double(date.timeIntervalSince1970) }
}

extension DeviceSummary {
    fileprivate var fields: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = [
            "mode": .string(mode.rawValue),
            "epoch": .uint64(epoch),
            "brokerVersion": .string(ProjectVersion.number),
            "joined": .boolean(isJoined),
            "identity": .string(identity.rawValue),
            "signInMethods": .strings(signInMethods.map(\.rawValue)),
            "passwordSignIn": .boolean(passwordSignIn),
        ]
        fields["signInHeldFor"] = signInHeldFor.map { .strings($0) }
        let texts = [
            "tenant": tenant, "organization": organization, "configurationProblem": configurationProblem,
            "enforcementProblem": enforcementProblem, "storeProblem": storeProblem, "keyProblem": keyProblem,
            "loginProblem": loginProblem, "issuer": provider?.issuer, "providerProblem": provider?.problem,
        ]
        for case (let key, let text?) in texts { fields[key] = .string(text) }
        if isLocked { fields["locked"] = .boolean(true) }
        if let sessionEnd { fields.merge(sessionEnd.fields) { $1 } }
        guard let provider else { return fields }
        fields["loopbackPorts"] = .array(provider.loopbackPorts.map { .uint16($0) }, of: "q")
        fields["needsSignIn"] = .boolean(provider.needsSignIn)
        fields["providerCheckedAt"] = provider.checkedAt.map { .time($0) }
        return fields
    }
}

extension BegunPrompt {
    fileprivate var fields: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = [
            "request": .string(name), "method": .string(method.rawValue), "expiresAt": .time(expires),
        ]
        if takesBadge { fields["badge"] = .boolean(true) }
        switch page {
        case .browser(let address)?: fields["authorizationURL"] = .string(address)
        case .deviceCode(let code, let address, let completeAddress)?:
            fields["userCode"] = .string(code)
            fields["verificationURI"] = .string(address)
            fields["verificationURIComplete"] = completeAddress.map { .string($0) }
            fields["interval"] = .pollPause
        case nil: break
        }
        return fields
    }
}

extension Grant {
    fileprivate var fields: BrokerProtocol.Fields {
        let token = WireToken(
            value: token.value,
            scopes: token.scopes.sorted(),
            expiresAt: token.expiresAt.timeIntervalSince1970,
            idToken: idToken
        )
        return ["account": account.fields, "epoch": .uint64(epoch), "token": token.fields]
    }
}

extension SignedOut {
    fileprivate var fields: BrokerProtocol.Fields {
        var fields = round?.fields ?? [:]
        fields["epoch"] = .uint64(epoch)
        fields["session"] = .uint64(session)
        fields["endSessionURL"] = endSessionURL.map { .string($0) }
        if !isStored { fields["stored"] = .boolean(false) }
        return fields
    }
}

extension Round {
    fileprivate var fields: BrokerProtocol.Fields { ["round": report.fields, "revision": .uint64(revision)] }
}

extension RunningApps {
    fileprivate var fields: BrokerProtocol.Fields {
        [
            "startProblems": .strings(startProblems),
            "enforcementProblems": .strings(enforcementProblems),
            "manifestProblems": .strings(manifestProblems),
            "certificates": .array(certificates.map { .fields($0.fields) }, of: "a{sv}"),
            "apps": .strings(apps),
            "holding": .strings(holding),
        ]
    }
}

extension DeviceStatus {
    fileprivate var fields: BrokerProtocol.Fields {
        var fields = device.fields
        fields["revision"] = .uint64(revision)
        fields["time"] = .time(time)
        fields["account"] = account?.fields
        fields["isStored"] = .boolean(isStored)
        fields["signedInAt"] = signedInAt.map { .time($0) }
        fields["cleanupPolicy"] = .string(cleanup.kind.rawValue)
        fields["cleanupTimeout"] = cleanup.timeout.map { .double($0 / .seconds(1)) }
        fields["rounds"] = .numbers(rounds)
        fields["apps"] = .array(apps.map { .fields($0.fields) }, of: "a{sv}")
        fields["enforcementProblems"] = .strings(enforcementProblems)
        fields["manifestProblems"] = .strings(manifestProblems)
        fields["certificates"] = .array(certificates.map { .fields($0.fields) }, of: "a{sv}")
        return fields
    }
}

extension DeviceCertificate {
    fileprivate var fields: BrokerProtocol.Fields {
        let term: BrokerProtocol.Fields =
            switch end {
            case .success(let end): ["end": .double(end)]
            case .failure(let problem): ["problem": .string(problem.description)]
            }
        return term.merging(["use": .string(use.rawValue), "file": .string(file)]) { $1 }
    }
}

extension DeviceStatus.App {
    fileprivate var fields: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = ["identifier": .string(identifier)]
        fields["startProblem"] = startProblem.map { .string($0) }
        guard let part else { return fields }
        fields["user"] = .uint32(part.user)
        fields["isRunning"] = .boolean(part.isRunning)
        fields["holdsData"] = .boolean(part.holdsData)
        fields["owes"] = .numbers(part.owes)
        return fields
    }
}

extension AuditLine {
    /// The entry without the person: a caller that watches a device need not learn who used it when.
    fileprivate var fields: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = [
            "sequence": .uint64(UInt64(clamping: sequence)),
            "at": .time(entry.at),
            "event": .string(entry.event.rawValue),
        ]
        fields["session"] = entry.session.map { .uint64($0) }
        fields["app"] = entry.app.map { .string($0) }
        fields["user"] = entry.user.map { .uint32($0) }
        fields["detail"] = entry.detail.map { .string($0) }
        return fields
    }
}

extension OverdueApp {
    fileprivate var fields: BrokerProtocol.Fields {
        [
            "app": .string(participant.app), "user": .uint32(participant.user), "sessions": .numbers(sessions),
            "connections": .strings(connections),
        ]
    }
}
