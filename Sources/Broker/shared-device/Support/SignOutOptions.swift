import ArgumentParser
import DBusTransport
import Glibc
import SharedDevice
import SharedDeviceBroker

/// What a command does about a user who is signed in.
struct SignOutOptions: ParsableArguments {
    @Flag(
        name: .customLong("sign-out"),
        help: "Have the broker sign the user out first, with all apps told, where the user is signed in."
    )
    var isWanted = false

    @OptionGroup var bus: BusOptions

    /// Signs the user out through the broker, where that is wanted and the user is signed in. Somebody may sign in again before the command
    /// has done its own part.
    ///
    /// - Parameter reason: for the audit log.
    func signOut(_ user: DirectoryUser, of database: DeviceDatabase, reason: String) throws {
        guard isWanted, try isSignedIn(user, database) else { return }
        let identifier = user.account.identifier
        do throws(SharedDeviceError) {
            let broker = try BrokerAdministration(bus: bus.bus)
            _ = try broker.callAndWait(
                .signOutAnyone,
                ["accountIdentifier": .string(identifier), "reason": .string(reason)],
                attempted: "sign \(user.account.username) out"
            )
        } catch {
            // Gone by itself meanwhile; or this bus's broker is another device's.
            guard [.noCurrentAccount, .currentAccountMismatch].contains(error.code) else { throw error }
            guard try isSignedIn(user, database) else { return }
            throw CommandFailure(
                status: EX_UNAVAILABLE,
                description:
                    "\(user.account.username) is signed in, but not at the broker on this bus, which has another state "
                    + "directory; name the right bus with --bus"
            )
        }
    }

    private func isSignedIn(_ user: DirectoryUser, _ database: DeviceDatabase) throws -> Bool {
        try AccountStore(database: database).state().account?.hasIdentifier(user.account.identifier) == true
    }
}
