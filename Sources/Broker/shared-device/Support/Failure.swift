import ArgumentParser
import Glibc
import SharedDevice
import SharedDeviceBroker

/// A failure that has no error of the library's.
struct CommandFailure: Error, CustomStringConvertible {
    let status: CInt
    let description: String
}

/// Runs a command; an error goes to standard error in one line, and its kind becomes the exit status, of `<sysexits.h>`.
func reportingFailure(_ body: () throws -> Void) throws {
    do {
        try body()
    } catch let error as ExitCode {
        throw error
    } catch {
        warn("\(error)")
        throw ExitCode(exitStatus(for: error))
    }
}

/// Writes one line to standard error.
func warn(_ message: String) {
    let line = Array("shared-device: \(message)\n".utf8)
    // Where standard error is closed, there is nobody to tell.
    _ = write(STDERR_FILENO, line, line.count)
}

private func exitStatus(for error: any Error) -> CInt {
    switch error {
    case let error as CommandFailure: error.status
    case let error as UserDirectoryError: error.storeError.map(exitStatus(for:)) ?? exitStatus(for: error.code)
    case let error as StoreError: exitStatus(for: error)
    case let error as ManagedConfigurationError: error.code == .unreadable ? EX_NOINPUT : EX_DATAERR
    case let error as SharedDeviceError: exitStatus(for: error.code)
    default: EX_SOFTWARE
    }
}

private func exitStatus(for code: UserDirectoryError.Code) -> CInt {
    switch code {
    case .unknownUser: EX_NOUSER
    case .usernameTaken: EX_CANTCREAT
    case .signedIn: EX_TEMPFAIL
    case .invalidUsername, .invalidDisplayName, .invalidTenant, .weakPassword, .unusablePassword: EX_DATAERR
    default: EX_SOFTWARE
    }
}

private func exitStatus(for code: SharedDeviceError.Code) -> CInt {
    switch code {
    case .brokerUnavailable: EX_UNAVAILABLE
    case .notPermitted, .authenticationFailed: EX_NOPERM
    case .tooManyAttempts, .cleanupPending: EX_TEMPFAIL
    case .invalidRequest, .tenantMismatch, .deviceNotJoined, .noCurrentAccount, .currentAccountMismatch: EX_DATAERR
    default: EX_SOFTWARE
    }
}

private func exitStatus(for error: StoreError) -> CInt {
    switch error.code {
    case .notFound: EX_NOINPUT
    case .noPermission, .insecure: EX_NOPERM
    case .cannotCreate: EX_CANTCREAT
    case .damaged, .foreignFile, .newerVersion: EX_DATAERR
    case .busy: EX_TEMPFAIL
    default: EX_IOERR
    }
}
