import DBusTransport
import Foundation
import Glibc

extension ConfigurationReader {
    /// An identifier in reverse-DNS form, which must be there.
    func manifestIdentifier(_ key: String) throws(ManagedConfigurationError) -> String {
        guard let identifier = try text(key) else { throw missing(key, "such as org.example.orders") }
        guard AppIdentifier.isReverseDNS(identifier) else {
            throw invalid(
                key,
                "“\(identifier)” is not in reverse-DNS form",
                remedy:
                    "write letters, digits, - and _ in two or more parts with dots between, such as org.example.orders"
            )
        }
        return identifier
    }

    /// An absolute path, which must be there, without symbolic links where the file exists.
    func executable(_ key: String) throws(ManagedConfigurationError) -> String {
        guard let path = try text(key) else { throw missing(key, "the absolute path of the app's program") }
        guard path.hasPrefix("/"), !path.hasSuffix("/"), !path.utf8.contains(0) else {
            throw invalid(
                key,
                "“\(path)” is no absolute path of a file",
                remedy: "write it from / on, such as /usr/bin/orders"
            )
        }
        guard let resolved = realpath(path, nil) else { return path }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    /// A user's name or number.
    func user(_ key: String) throws(ManagedConfigurationError) -> uid_t? {
        switch values[key] {
        case nil: return nil
        // The greatest number means no user at all.
        case .integer(let number)?:
            guard let user = uid_t(exactly: number), user != uid_t.max else {
                throw invalid(key, "\(number) is no user's number", remedy: "write the user's name")
            }
            return user
        case .string(let name)?:
            guard let user = SystemUser.identifier(ofUserNamed: name) else {
                throw invalid(
                    key,
                    "this system has no user “\(name)”",
                    remedy: "make the user and then write the manifest anew, or leave the key out for any user"
                )
            }
            return user
        default:
            throw .wrongType(
                file: file,
                key: key,
                remedy: "write a user's name as a string, or its number, or leave the key out"
            )
        }
    }

    /// A name that a program can own on a bus.
    func busName(_ key: String) throws(ManagedConfigurationError) -> String? {
        guard let name = try text(key) else { return nil }
        guard BusName.isWellKnown(name) else {
            throw invalid(
                key,
                "“\(name)” is no name that a program can own on a bus",
                remedy: "write the name of its service file, such as org.example.orders, or leave the key out"
            )
        }
        return name
    }

    /// Names for people, each once.
    func stores(_ key: String) throws(ManagedConfigurationError) -> [String] {
        let stores = try strings(key) ?? []
        var seen: Set<String> = []
        for store in stores {
            guard !store.allSatisfy(\.isWhitespace) else {
                throw invalid(key, "a name is empty", remedy: "write what the app keeps there, such as orders database")
            }
            guard seen.insert(store).inserted else {
                throw invalid(key, "“\(store)” is there twice", remedy: "name each store once")
            }
        }
        return stores
    }

    private func missing(_ key: String, _ wanted: String) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .invalidValue,
            file: file,
            key: key,
            message: "the key is absent, and a manifest needs it",
            remedy: "write a string: \(wanted)"
        )
    }
}
