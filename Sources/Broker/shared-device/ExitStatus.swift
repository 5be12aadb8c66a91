public import CommandParts
public import DeviceConfiguration
public import DeviceStorage
public import EmbeddedIdentity
import Glibc

extension StoreError: HasExitStatus {}

extension UserDirectoryError: HasExitStatus {
    public var exitStatus: CInt {
        if let storeError { return storeError.exitStatus }
        return switch code {
        case .unknownUser: EX_NOUSER
        case .usernameTaken, .badgeTaken: EX_CANTCREAT
        case .signedIn: EX_TEMPFAIL
        case .invalidUsername, .invalidDisplayName, .invalidTenant, .invalidGroups, .weakPassword,
            .unusablePassword, .invalidPIN, .invalidBadge:
            EX_DATAERR
        default: EX_SOFTWARE
        }
    }
}

extension ManagedConfigurationError: HasExitStatus {
    public var exitStatus: CInt { code == .unreadable ? EX_NOINPUT : EX_DATAERR }
}
