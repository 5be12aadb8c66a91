package import DeviceConfiguration
package import FoundationEssentials
package import Identity
@_spi(Extensions) package import SharedDevice

/// A response to a request. The service encodes it for the bus.
package enum Response: Sendable {
    /// There is nothing to tell but that the request was carried out.
    case done
    indirect case device(DeviceSummary)
    indirect case session(SessionAnswer)
    indirect case prompt(BegunPrompt)
    /// The person has not finished signing in.
    case pending
    case signedIn(username: String, epoch: UInt64)
    indirect case grant(Grant)
    indirect case signedOut(SignedOut)
    /// The receipt does not count: its sender has to ask for what it owes.
    case again
    case round(Round)
    case waived([UInt64])
    case joined(tenant: String)
    indirect case runningApps(RunningApps)
    indirect case status(DeviceStatus)
    case log([AuditLine])
    case overdue([OverdueApp])
    indirect case screen(ScreenAnswer)
    /// The processes of an app that are still connected after its enforced cleanup.
    case stillConnected([String])
}

/// The information about the device for apps and prompts.
package struct DeviceSummary: Sendable {
    package let mode: ManagedMode
    package let epoch: UInt64
    package let isJoined: Bool
    package let identity: IdentitySource
    /// The apps that the next sign-in waits for; `nil` if it need not wait.
    package let signInHeldFor: [String]?
    package let tenant: String?
    package let organization: String?
    package let configurationProblem: String?
    package let enforcementProblem: String?
    package let storeProblem: String?
    package let keyProblem: String?
    package let loginProblem: String?
    /// When the session ends by itself; `nil` if no session is open, or if it does not.
    package let sessionEnd: SessionEnd?
    /// Whether the session is open and the screen locked.
    package let isLocked: Bool
    package let signInMethods: [BrokerProtocol.SignInMethod]
    package let passwordSignIn: Bool
    package let provider: ProviderSummary?
}

/// The information about the organisation's provider.
package struct ProviderSummary: Sendable {
    package let issuer: String
    package let loopbackPorts: [UInt16]
    package let needsSignIn: Bool
    package let problem: String?
    package let checkedAt: Date?
}

/// A sign-in at a prompt, which now asks the person.
package struct BegunPrompt: Sendable {
    /// The interval of polling for a person at another device.
    package static let pollPause = Duration.seconds(2)

    package let name: String
    package let method: BrokerProtocol.SignInMethod
    package let expires: Date
    /// The provider's page; `nil` if the prompt asks for a password.
    package let page: BegunSignIn.Prompt?
    /// Whether the prompt may also ask for a badge and a PIN.
    package let takesBadge: Bool
}

/// A token that an app is given, with the account and session that it belongs to.
package struct Grant: Sendable {
    package let account: Account
    package let epoch: UInt64
    package let token: AccessToken
    package internal(set) var idToken: String?
}

package struct SignedOut: Sendable {
    package let epoch: UInt64
    /// The session that has ended.
    package let session: UInt64
    package let endSessionURL: String?
    /// Whether the sign-out is committed.
    package internal(set) var isStored = true
    package internal(set) var round: Round?
}

/// A cleanup round. Its revision grows with each change.
package struct Round: Sendable {
    package let report: CleanupReport
    package let revision: UInt64
}

/// The apps that run, and the problems with apps.
package struct RunningApps: Sendable {
    package let apps: [String]
    /// The apps that hold data of the open session.
    package let holding: [String]
    package let startProblems: [String]
    package let enforcementProblems: [String]
    package let manifestProblems: [String]
    package let certificates: [DeviceCertificate]
}

/// The device's status for a console.
package struct DeviceStatus: Sendable {
    package let device: DeviceSummary
    package let revision: UInt64
    package let time: Date
    package let account: Account?
    package let isStored: Bool
    package let signedInAt: Date?
    package let cleanup: CleanupPolicy
    package let rounds: [UInt64]
    package let apps: [App]
    package let enforcementProblems: [String]
    package let manifestProblems: [String]
    package let certificates: [DeviceCertificate]

    package struct App: Sendable {
        package let identifier: String
        /// The entry of one user; `nil` for an app that has a manifest and nothing else.
        package let part: Part?
        package let startProblem: String?
    }

    package struct Part: Sendable {
        package let user: UInt32
        package let isRunning: Bool
        package let holdsData: Bool
        package let owes: [UInt64]
    }
}

/// An app that is late, for the program that enforces its cleanup.
package struct OverdueApp: Sendable {
    /// How many apps are claimed at a time. The others follow when those are done.
    package static let most = 64

    package let participant: Participant
    package let sessions: [UInt64]
    package let connections: [String]
}
