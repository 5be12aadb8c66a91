import DBusTransport

/// A service on the session's bus. None is started for a call: what does not run keeps nothing in its memory.
struct SessionService: Sendable {
    static let klipper = SessionService("org.kde.klipper")
    static let secrets = SessionService("org.freedesktop.secrets")
    /// KDE's wallets, by version.
    static let wallets = [SessionService("org.kde.kwalletd6"), SessionService("org.kde.kwalletd5")]

    private static let patience = Duration.seconds(10)

    let name: String

    private init(_ name: String) { self.name = name }

    /// Whether it runs. A session without a bus has none.
    func runs() async throws(AdapterFailure) -> Bool {
        guard (try? Bus.session.resolvedAddress()) != nil else { return false }
        return try await translated("find") { () throws(DBusError) in
            try await DBusConnection.open(.session).owner(of: name) != nil
        }
    }

    /// Calls a method where it runs.
    ///
    /// - Returns: the first value of the answer; `nil` where there is none.
    @discardableResult
    func call(
        _ path: String,
        _ interface: String,
        _ member: String,
        _ arguments: [DBusValue] = []
    ) async throws(AdapterFailure) -> DBusValue? {
        try await values(path, interface, member, arguments).first
    }

    /// Calls a method where it runs.
    ///
    /// - Returns: all values of the answer; none where it does not run.
    func values(
        _ path: String,
        _ interface: String,
        _ member: String,
        _ arguments: [DBusValue] = []
    ) async throws(AdapterFailure) -> [DBusValue] {
        guard try await runs() else { return [] }
        return try await translated("call \(member) of") { () throws(DBusError) in
            let message = try DBusMessage.methodCall(
                destination: name,
                path: path,
                interface: interface,
                member: member,
                arguments: arguments
            )
            return try await DBusConnection.open(.session).call(message, timeout: Self.patience)
        }
    }

    /// A property of one of its objects.
    func property(_ name: String, of path: String, _ interface: String) async throws(AdapterFailure) -> DBusValue? {
        let answer = try await call(
            path,
            "org.freedesktop.DBus.Properties",
            "Get",
            [.string(interface), .string(name)]
        )
        guard case .variant(let value) = answer else { return nil }
        return value
    }

    private func translated<Value>(
        _ attempted: String,
        _ body: () async throws(DBusError) -> Value
    ) async throws(AdapterFailure) -> Value {
        do throws(DBusError) {
            return try await body()
        } catch {
            throw AdapterFailure(attempted, name, error.message, remedy: "See whether it hangs: busctl --user")
        }
    }
}
