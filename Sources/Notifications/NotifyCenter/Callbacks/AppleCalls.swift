import DBusTransport

// What the modules with Apple's functions share: these functions take pointers and throw nothing.

extension UnthrownFailures {
    /// Does the work of a function that Apple declares without a way to throw, and reports what it throws.
    package static func report(in function: String, _ work: () throws -> Void) {
        do { try work() } catch { report(error, in: function) }
    }

    /// Reports that a caller has left out an argument without which a function does nothing.
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
    /// The object that a pointer stands for. To the local center it is an address, which nobody follows (CF-P3); to the distributed
    /// one a string, which `text` reads; to the Darwin center it is nothing (CF-M6).
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

    /// The content that two pointers stand for. The local center hands on the pointers themselves (CF-U3), the distributed one a
    /// property list, which `values` reads; the Darwin center hands on nothing (CF-U4).
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
