import Basics
package import BrokerCore
import DBus
import DeviceConfiguration
import FoundationEssentials
import Identity
@_spi(Extensions) package import SharedDevice

private typealias Fields = BrokerProtocol.Fields

// The responses as dictionaries of the protocol. Absent values have no key.

extension Response {
    package var fields: BrokerProtocol.Fields {
        switch self {
        case .done: [:]
        case .device(let device): encode(device)
        case .session(let answer): answer.fields
        case .prompt(let prompt): encode(prompt)
        case .pending: ["pending": .boolean(true), "interval": .pollPause]
        case .signedIn(let username, let epoch): ["username": .string(username), "epoch": .uint64(epoch)]
        case .grant(let grant): encode(grant)
        case .signedOut(let end): encode(end)
        case .again: ["again": .boolean(true)]
        case .round(let round): encode(round)
        case .waived(let sessions): ["sessions": .numbers(sessions)]
        case .joined(let tenant): ["tenant": .string(tenant)]
        case .runningApps(let apps): encode(apps)
        case .status(let status): encode(status)
        case .log(let lines): ["entries": .dictionaries(lines.map(encode))]
        case .overdue(let apps): ["overdue": .dictionaries(apps.map(encode))]
        case .screen(let answer): answer.fields
        case .stillConnected(let connections): ["connections": .strings(connections)]
        }
    }
}

extension DBusValue {
    fileprivate static var pollPause: DBusValue { .double(BegunPrompt.pollPause / .seconds(1)) }
    fileprivate static func strings(_ texts: [String]) -> DBusValue { .array(texts.map { .string($0) }, of: "s") }
    fileprivate static func numbers(_ numbers: [UInt64]) -> DBusValue { .array(numbers.map { .uint64($0) }, of: "t") }
    fileprivate static func dictionaries(_ all: [Fields]) -> DBusValue { .array(all.map { .fields($0) }, of: "a{sv}") }
    fileprivate static func time(_ date: Date) -> DBusValue { .double(date.timeIntervalSince1970) }
}

private func encode(_ device: DeviceSummary) -> Fields {
    var fields: Fields = [
        "mode": .string(device.mode.rawValue), "epoch": .uint64(device.epoch),
        "brokerVersion": .string(ProjectVersion.number), "joined": .boolean(device.isJoined),
        "identity": .string(device.identity.rawValue),
        "signInMethods": .strings(device.signInMethods.map(\.rawValue)),
        "passwordSignIn": .boolean(device.passwordSignIn),
    ]
    fields["signInHeldFor"] = device.signInHeldFor.map { .strings($0) }
    let texts = [
        "tenant": device.tenant, "organization": device.organization,
        "configurationProblem": device.configurationProblem, "enforcementProblem": device.enforcementProblem,
        "storeProblem": device.storeProblem, "keyProblem": device.keyProblem, "loginProblem": device.loginProblem,
        "issuer": device.provider?.issuer, "providerProblem": device.provider?.problem,
    ]
    for case (let key, let text?) in texts { fields[key] = .string(text) }
    if device.isLocked { fields["locked"] = .boolean(true) }
    if let end = device.sessionEnd { fields.merge(end.fields) { $1 } }
    guard let provider = device.provider else { return fields }
    fields["loopbackPorts"] = .array(provider.loopbackPorts.map { .uint16($0) }, of: "q")
    fields["needsSignIn"] = .boolean(provider.needsSignIn)
    fields["providerCheckedAt"] = provider.checkedAt.map { .time($0) }
    return fields
}

private func encode(_ prompt: BegunPrompt) -> Fields {
    var fields: Fields = [
        "request": .string(prompt.name), "method": .string(prompt.method.rawValue), "expiresAt": .time(prompt.expires),
    ]
    if prompt.takesBadge { fields["badge"] = .boolean(true) }
    switch prompt.page {
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

private func encode(_ grant: Grant) -> Fields {
    let token = WireToken(
        value: grant.token.value,
        scopes: grant.token.scopes.sorted(),
        expiresAt: grant.token.expiresAt.timeIntervalSince1970,
        idToken: grant.idToken
    )
    return ["account": grant.account.fields, "epoch": .uint64(grant.epoch), "token": token.fields]
}

private func encode(_ end: SignedOut) -> Fields {
    var fields = end.round.map(encode) ?? [:]
    fields["epoch"] = .uint64(end.epoch)
    fields["session"] = .uint64(end.session)
    fields["endSessionURL"] = end.endSessionURL.map { .string($0) }
    if !end.isStored { fields["stored"] = .boolean(false) }
    return fields
}

private func encode(_ round: Round) -> Fields {
    ["round": round.report.fields, "revision": .uint64(round.revision)]
}

private func encode(_ apps: RunningApps) -> Fields {
    [
        "startProblems": .strings(apps.startProblems), "enforcementProblems": .strings(apps.enforcementProblems),
        "manifestProblems": .strings(apps.manifestProblems),
        "certificates": .dictionaries(apps.certificates.map(encode)), "apps": .strings(apps.apps),
        "holding": .strings(apps.holding),
    ]
}

private func encode(_ status: DeviceStatus) -> Fields {
    var fields = encode(status.device)
    fields["revision"] = .uint64(status.revision)
    fields["time"] = .time(status.time)
    fields["account"] = status.account?.fields
    fields["isStored"] = .boolean(status.isStored)
    fields["signedInAt"] = status.signedInAt.map { .time($0) }
    fields["cleanupPolicy"] = .string(status.cleanup.kind.rawValue)
    fields["cleanupTimeout"] = status.cleanup.timeout.map { .double($0 / .seconds(1)) }
    fields["rounds"] = .numbers(status.rounds)
    fields["apps"] = .dictionaries(status.apps.map(encode))
    fields["enforcementProblems"] = .strings(status.enforcementProblems)
    fields["manifestProblems"] = .strings(status.manifestProblems)
    fields["certificates"] = .dictionaries(status.certificates.map(encode))
    return fields
}

private func encode(_ certificate: DeviceCertificate) -> Fields {
    var fields: Fields = ["use": .string(certificate.use.rawValue), "file": .string(certificate.file)]
    switch certificate.end {
    case .success(let end): fields["end"] = .double(end)
    case .failure(let problem): fields["problem"] = .string(problem.description)
    }
    return fields
}

private func encode(_ app: DeviceStatus.App) -> Fields {
    var fields: Fields = ["identifier": .string(app.identifier)]
    fields["startProblem"] = app.startProblem.map { .string($0) }
    guard let part = app.part else { return fields }
    fields["user"] = .uint32(part.user)
    fields["isRunning"] = .boolean(part.isRunning)
    fields["holdsData"] = .boolean(part.holdsData)
    fields["owes"] = .numbers(part.owes)
    return fields
}

/// Without the person: a caller that watches a device need not learn who used it when.
private func encode(_ line: AuditLine) -> Fields {
    let entry = line.entry
    var fields: Fields = [
        "sequence": .uint64(UInt64(clamping: line.sequence)), "at": .time(entry.at),
        "event": .string(entry.event.rawValue),
    ]
    fields["session"] = entry.session.map { .uint64($0) }
    fields["app"] = entry.app.map { .string($0) }
    fields["user"] = entry.user.map { .uint32($0) }
    fields["detail"] = entry.detail.map { .string($0) }
    return fields
}

private func encode(_ app: OverdueApp) -> Fields {
    [
        "app": .string(app.participant.app), "user": .uint32(app.participant.user),
        "sessions": .numbers(app.sessions), "connections": .strings(app.connections),
    ]
}
