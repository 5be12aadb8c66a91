import Basics
import Glibc
@_spi(Extensions) import SharedDevice

/// The users whose calls to the broker the system bus permits. A call that the bus refuses costs the broker no time.
///
/// The policy is closed only if all possible participants are named. The broker decides in any case, so the policy must
/// not exclude a caller that the broker would admit.
public enum BusPolicy: Sendable, Equatable {
    /// Every user, for this reason.
    case everyone(String)
    /// These users and groups. `unknown` are operators that the system does not know; groups have a “%” in front.
    case only(users: [String], groups: [String], unknown: [String] = [])

    public struct Names: Sendable {
        var name: @Sendable (uid_t) throws(SystemUser.LookupFailure) -> String?
        var isUser: @Sendable (String) throws(SystemUser.LookupFailure) -> Bool
        var isGroup: @Sendable (String) throws(SystemUser.LookupFailure) -> Bool

        /// This machine's databases. They may block.
        public static let system = Names(
            name: { number throws(SystemUser.LookupFailure) in try SystemUser(number: number).name },
            isUser: { name throws(SystemUser.LookupFailure) in try SystemUser(name: name) != nil },
            isGroup: { name throws(SystemUser.LookupFailure) in try SystemDatabase.lookUpGroup(name) { _ in } != nil }
        )
    }

    /// The broker's user, and the services that call the broker.
    static let services = ["shared-device", "shared-device-identity"]
    /// The groups that polkit treats as administrators, by the defaults of the distributions.
    static let administrators = ["sudo", "wheel"]
    /// The maximum number of names. The bus checks every rule of a user for every message.
    static let mostNames = 1000

    /// - Parameter manifests: The manifests of all apps on the device.
    public init(
        _ configuration: ManagedConfigurationFile.Content,
        _ manifests: [AppManifest],
        names: Names = .system
    ) throws(SystemUser.LookupFailure) {
        guard case .present(let configuration) = configuration, configuration.mode == .shared else {
            self = .everyone("the device is personal, and any app may ask whether it is")
            return
        }
        guard configuration.requiresEnrolment != false else {
            self = .everyone("“requiresEnrolment” is false, so that apps without a manifest take part")
            return
        }
        let isReporterOfAll = manifests.contains {
            $0.identifier == BrokerProtocol.activityIdentifier && $0.identity.user == nil
        }
        guard !isReporterOfAll || configuration.identity != .loginSession || configuration.inactivityTimeout == nil
        else {
            self = .everyone("shared-device-activity reports input as any user who is logged in")
            return
        }
        var users: Set<String> = ["root"]
        var groups: Set<String> = []
        // On the system bus a manifest without proof never matches.
        for manifest in manifests where manifest.identity.isProof {
            guard let number = manifest.identity.user else {
                self = .everyone("the manifest of \(manifest.identifier) has no “user”, so that any user may run it")
                return
            }
            guard let name = try names.name(number) else {
                self = .everyone("the manifest of \(manifest.identifier) has the user \(number), who has no name here")
                return
            }
            users.insert(name)
        }
        for name in Self.services where try names.isUser(name) { users.insert(name) }
        for name in Self.administrators where try names.isGroup(name) { groups.insert(name) }
        var unknown: Set<String> = []
        for name in configuration.operators.names {
            let group = name.first == "%" ? String(name.dropFirst()) : nil
            if let group, try names.isGroup(group) {
                groups.insert(group)
            } else if group == nil, try names.isUser(name) {
                users.insert(name)
            } else {
                unknown.insert(name)
            }
        }
        guard users.count + groups.count <= Self.mostNames else {
            self = .everyone("more than \(Self.mostNames) users and groups may call")
            return
        }
        guard users.union(groups).allSatisfy({ !$0.unicodeScalars.contains(where: \.isInvisible) }) else {
            self = .everyone("the name of a user or group has characters that no XML file may have")
            return
        }
        self = .only(users: users.sorted(), groups: groups.sorted(), unknown: unknown.sorted())
    }

    /// The file that the bus includes, in the bus's own XML.
    public var xml: String { xml(rules) }

    /// The policy and its file while the manifest at this path is invalid. The rules of the former file are kept,
    /// because the broker still admits the app of a manifest that has become invalid. If the former file admits any
    /// user, the new one does, too, because the app's user is not known.
    public func beside(badManifest manifest: String, former: String?) -> (policy: BusPolicy, xml: String) {
        let lines = former.map { $0.split(separator: "\n").map(String.init) } ?? []
        guard case .only = self, lines.contains(Self.refusal) else {
            let open: BusPolicy =
                if case .only = self { .everyone("the user of \(manifest) is not known") } else { self }
            return (open, open.xml)
        }
        let kept = lines.filter { $0.hasPrefix(#"  <policy user=""#) || $0.hasPrefix(#"  <policy group=""#) }
        return (self, xml(rules + kept.filter { !rules.contains($0) }))
    }

    private static let destination = #"send_destination="org.notifycenter.SharedDevice1""#
    private static let refusal = #"  <policy context="default"><deny \#(destination)/></policy>"#

    /// One rule per line; none if any user may call.
    private var rules: [String] {
        guard case .only(let users, let groups, _) = self else { return [] }
        let names = groups.map { ("group", $0) } + users.map { ("user", $0) }
        return [Self.refusal]
            + names.map { kind, name in #"  <policy \#(kind)="\#(name.markup)"><allow \#(Self.destination)/></policy>"#
            }
    }

    private func xml(_ rules: [String]) -> String {
        let lines = [
            #"<?xml version="1.0" encoding="UTF-8"?>"#,
            #"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN""#,
            #" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">"#,
            "<!-- Written by shared-device bus-policy. Changes are overwritten: rules of your own go into /etc/dbus-1/system.d. -->",
            "<busconfig>",
        ]
        return (lines + rules + ["</busconfig>", ""]).joined(separator: "\n")
    }
}

extension BusPolicy: CustomStringConvertible {
    public var description: String {
        switch self {
        case .everyone(let reason): "any user may call the broker: \(reason)"
        case .only(let users, let groups, let unknown):
            "only these may call the broker: \((users + groups.map { "%\($0)" }).joined(separator: ", "))"
                + (unknown.isEmpty
                    ? "" : "; the system does not know these operators yet: \(unknown.joined(separator: ", "))")
        }
    }
}
