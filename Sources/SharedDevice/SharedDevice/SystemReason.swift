import FoundationEssentials
import Glibc

/// The reason for a failure with a file, in the system's words. Without Foundation, its errors have no text for people.
@_spi(Extensions) public func systemReason(_ error: any Error) -> String {
    let cause = (error as? CocoaError)?.underlying ?? error
    return (cause as? POSIXError).map { String(cString: strerror($0.code.rawValue)) } ?? "\(error)"
}
