/// The objects that this connection serves, by path. Pure: finds who answers a call.
struct ObjectTable {
    private var objects: [String: [DBusInterface]] = [:]

    mutating func insert(_ interfaces: [DBusInterface], at path: String) -> Bool {
        guard objects[path] == nil else { return false }
        objects[path] = interfaces
        return true
    }

    mutating func remove(_ path: String) -> [DBusInterface]? { objects.removeValue(forKey: path) }

    func interfaces(at path: String) -> [DBusInterface] { objects[path] ?? [] }

    /// The names of the nodes directly below `path`.
    func children(of path: String) -> [String] {
        let prefix = path == "/" ? "/" : path + "/"
        let names = objects.keys.filter { $0.hasPrefix(prefix) && $0 != "/" }
            .compactMap { $0.dropFirst(prefix.count).split(separator: "/").first.map(String.init) }
        return Set(names).sorted()
    }

    /// Whether `path` is an object or leads to one.
    func isNode(_ path: String) -> Bool { path == "/" || objects[path] != nil || !children(of: path).isEmpty }

    /// The method that a call names. The interface may be left out of a call (D-Bus specification, "Message Types").
    func method(path: String, interface: String?, member: String) throws(MethodFailure) -> DBusInterface.Method {
        guard isNode(path) else { throw .standard("UnknownObject", "there is no object \(path)") }
        let interfaces = interfaces(at: path).filter { interface == nil || $0.name == interface }
        guard !interfaces.isEmpty else {
            throw .standard("UnknownInterface", "\(path) has no interface \(interface ?? "at all")")
        }
        guard let method = interfaces.lazy.flatMap(\.methods).first(where: { $0.name == member }) else {
            throw .standard("UnknownMethod", "\(interface ?? path) has no method \(member)")
        }
        return method
    }
}
