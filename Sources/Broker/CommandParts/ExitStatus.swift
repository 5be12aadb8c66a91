import Glibc
package import SharedDevice

extension SharedDeviceError.Code {
    /// The exit status of a command that fails so, of `<sysexits.h>`.
    package var exitStatus: CInt {
        switch self {
        case .brokerUnavailable, .providerUnavailable: EX_UNAVAILABLE
        case .providerMisconfigured: EX_CONFIG
        case .notPermitted, .authenticationFailed, .interactionRequired: EX_NOPERM
        case .tooManyAttempts, .cleanupPending, .loginExpired: EX_TEMPFAIL
        case .invalidRequest, .tenantMismatch, .deviceNotJoined, .noCurrentAccount, .currentAccountMismatch: EX_DATAERR
        default: EX_SOFTWARE
        }
    }
}
