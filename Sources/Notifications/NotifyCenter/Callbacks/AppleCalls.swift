import Basics
import DBus

// Shared by the modules with Apple's functions, which take pointers and throw nothing.

extension UnthrownFailures {
    /// Runs `work` for a function that Apple declares without `throws`, and reports its error.
    package static func report(in function: String, _ work: () throws -> Void) {
        do { try work() } catch { report(error, in: function) }
    }

    /// Reports a missing argument. The function did nothing because it needs that argument.
    package static func report(missing argument: String, in function: String, attempted: String) {
        report(
            DBusError(
                .invalidArgument,
                message: "there is no \(argument), so nothing was done",
                attempted: attempted,
                remedy: "pass the \(argument)"
            ),
            in: function
        )
    }
}

extension CallbackCenter {
    /// Converts a pointer to this center's object. The local center uses the address and never dereferences it (CF-P3).
    /// The distributed center uses a string, which `text` reads. The Darwin center has no objects (CF-M6).
    package func object<Failure: Error>(
        _ pointer: UnsafeRawPointer?,
        text: (UnsafeRawPointer) throws(Failure) -> String
    ) throws(Failure) -> Object? {
        guard let pointer else { return nil }
        return switch kind {
        case .local: .address(UInt(bitPattern: pointer))
        case .darwin: nil
        case .distributed: .text(try text(pointer))
        }
    }

    /// Converts two pointers to this center's content. The local center hands on the pointers themselves (CF-U3). The
    /// distributed center hands on a property list, which `values` reads. The Darwin center hands on nothing (CF-U4).
    package func content<Failure: Error>(
        name: UnsafeRawPointer,
        userInfo: UnsafeRawPointer?,
        values: (UnsafeRawPointer) throws(Failure) -> UserInfo
    ) throws(Failure) -> Content {
        switch kind {
        case .local:
            return .local(.init(name: UInt(bitPattern: name), userInfo: userInfo.map { UInt(bitPattern: $0) }))
        case .darwin: return .none
        case .distributed:
            guard let userInfo else { return .none }
            return .distributed(try values(userInfo))
        }
    }
}
