import ArgumentParser
import Basics
public import CommandParts
public import DeviceConfiguration
public import DeviceStorage
import Dispatch
public import EmbeddedIdentity
import Glibc
import Synchronization

@main
struct SharedDeviceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device",
        abstract: "Administers a shared device, and checks apps for one.",
        discussion: """
            Exit status: 0 done; 64 wrong usage; 65 data that cannot be used; 66 not found; 67 unknown user; \
            69 the broker does not respond, or a needed program does not start; 70 the broker failed; 73 cannot be created; \
            74 input or output failed; 75 not now, try again later; 77 no permission.
            """ + FurtherCommands.help,
        version: ProjectVersion.line(of: "shared-device"),
        subcommands: [
            StatusCommand.self, WatchCommand.self, MetricsCommand.self, FollowCommand.self, RunCommand.self,
            SessionTracesCommand.self, SignOutCommand.self, AppsCommand.self, LogCommand.self, UserCommand.self,
            JoinCommand.self, LeaveCommand.self, ConfigurationCommand.self, BusPolicyCommand.self, ProviderCommand.self,
            CheckCommand.self,
        ]
    )

    static func main() {
        let known = configuration.subcommands.compactMap { $0.configuration.commandName }
        FurtherCommands.runInstead(CommandLine.arguments, known: Set(known))
        main(nil)
    }
}

/// Runs asynchronous work for a command with a synchronous `run`. While a command asks for a password it has a single
/// thread, because signals have to reach that thread.
enum OtherThreads {
    /// Runs `body` on other threads, and blocks this one until it ends.
    static func run<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) throws -> Value {
        let outcome = Locked<Result<Value, any Error>?>(nil)
        let done = DispatchSemaphore(value: 0)
        Task {
            do {
                let value = try await body()
                outcome.withLock { $0 = .success(value) }
            } catch {
                outcome.withLock { $0 = .failure(error) }
            }
            done.signal()
        }
        done.wait()
        guard let result = outcome.withLock({ $0 }) else { throw CancellationError() }
        return try result.get()
    }
}

extension StoreError: HasExitStatus {}

extension UserDirectoryError: HasExitStatus {
    public var exitStatus: CInt {
        if let storeError { return storeError.exitStatus }
        return switch code {
        case .unknownUser: EX_NOUSER
        case .usernameTaken, .badgeTaken: EX_CANTCREAT
        case .signedIn: EX_TEMPFAIL
        case .invalidUsername, .invalidDisplayName, .invalidTenant, .invalidGroups, .weakPassword, .unusablePassword,
            .invalidPIN, .invalidBadge:
            EX_DATAERR
        default: EX_SOFTWARE
        }
    }
}

extension ManagedConfigurationError: HasExitStatus {
    public var exitStatus: CInt { code == .unreadable ? EX_NOINPUT : EX_DATAERR }
}
