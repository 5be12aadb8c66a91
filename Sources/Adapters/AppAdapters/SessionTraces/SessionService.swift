import DBus

/// A service on the session bus. Calls never start a service: without a process it holds nothing in memory.
struct SessionService: Sendable {
    static let klipper = SessionService("org.kde.klipper")
    static let secrets = SessionService("org.freedesktop.secrets")
    /// KDE's wallets, by version.
    static let wallets = [SessionService("org.kde.kwalletd6"), SessionService("org.kde.kwalletd5")]

    private static let patience = Duration.seconds(10)

    let name: String

    private init(_ name: String) { self.name = name }

    /// Whether the service runs; `false` without a session bus.
    func runs() async throws(AdapterFailure) -> Bool {
        guard (try? Bus.session.resolvedAddress()) != nil else { return false }
        return try await translated("find") { () throws(DBusError) in
            try await DBusConnection.open(.session).owner(of: name) != nil
        }
    }

    /// Calls a method if the service runs. Returns the first value of the response; `nil` if there is none.
    @discardableResult
    func call(
        _ path: String,
        _ interface: String,
        _ member: String,
        _ arguments: [DBusValue] = []
    ) async throws(AdapterFailure) -> DBusValue? {
        try await values(path, interface, member, arguments).first
    }

    /// Calls a method if the service runs. Returns all values of the response; none if the service does not run.
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
            let remedy = "See whether it hangs: busctl --user"
            throw AdapterFailure("\(attempted) \(name): \(error.message)", remedy: remedy)
        }
    }
}
