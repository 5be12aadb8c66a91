import Basics
import DBus
import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The secrets that a session's programs have stored, in the running Secret Service and in files. An open keyring, also
/// one without a password, is emptied item by item and kept, because the session needs one to store in. A locked
/// keyring is deleted. Without a service the files are deleted.
struct Keyring: Sendable {
    static let root = "/org/freedesktop/secrets"
    static let interface = "org.freedesktop.Secret"

    private struct Collection {
        let path: String
        let isLocked: Bool
        let items: [String]
    }

    let places: TracePlaces
    let files: TraceFiles

    func look() async throws(AdapterFailure) -> TraceFinding {
        let collections = try await Self.collections()
        let found = try await files.look(at: try await paths(isServed: collections != nil))
        return Self.finding(Self.count(collections), found)
    }

    func remove() async throws(AdapterFailure) -> TraceFinding {
        // KDE writes an open wallet to its file when it closes.
        for (service, number) in zip(SessionService.wallets, [6, 5]) {
            try await service.call("/modules/kwalletd\(number)", "org.kde.KWallet", "closeAllWallets")
        }
        let collections = try await Self.collections()
        for collection in collections ?? [] {
            if collection.isLocked {
                try await Self.delete(collection.path, "Collection")
            } else {
                for item in collection.items { try await Self.delete(item, "Item") }
            }
        }
        let removed = try await files.remove(try await paths(isServed: collections != nil))
        let left = Self.count(try await Self.collections())
        guard left == 0 else {
            let failure = "empty the keyring: \(left) \(left == 1 ? "item is" : "items are") in it again"
            throw AdapterFailure(failure, remedy: "End the program that stores them before the session ends")
        }
        return Self.finding(Self.count(collections), removed)
    }

    private static func count(_ collections: [Collection]?) -> Int {
        collections?.reduce(0) { $0 + $1.items.count } ?? 0
    }

    private static func finding(_ items: Int, _ files: TraceFinding) -> TraceFinding {
        let stored = items == 0 ? nil : "\(items) \(items == 1 ? "item" : "items")"
        guard case .traces(let text) = files else { return stored.map { .traces($0) } ?? files }
        return .traces([stored, text].compactMap(\.self).joined(separator: ", "))
    }

    /// The files to delete. Keyrings of the running service stay, because the service has emptied or deleted them.
    private func paths(isServed: Bool) async throws(AdapterFailure) -> [String] {
        guard isServed else { return places.keyrings + places.wallets }
        let folders = places.keyrings
        let found = try await onSystemThread { () throws(AdapterFailure) in try Self.others(in: folders) }
        return found + places.wallets
    }

    /// The content of the folders apart from the service's keyrings. A missing folder is empty.
    static func others(in folders: [String]) throws(AdapterFailure) -> [String] {
        var others: [String] = []
        for folder in folders {
            do {
                others += try FileManager.default.contentsOfDirectory(atPath: folder)
                    .filter { !$0.hasSuffix(".keyring") && $0 != "default" }.sorted().map { "\(folder)/\($0)" }
            } catch let error as CocoaError where error.code == .fileReadNoSuchFile {
                continue
            } catch {
                let remedy = "Let the session's user read the folder, or leave the step out (--without keyring)"
                throw AdapterFailure("list \(folder): \(systemReason(error))", remedy: remedy)
            }
        }
        return others
    }

    /// The service's collections, after opening those without a password; `nil` if no service runs.
    private static func collections() async throws(AdapterFailure) -> [Collection]? {
        let collections = try await presentCollections()
        guard let locked = collections?.filter(\.isLocked), !locked.isEmpty else { return collections }
        try await unlock(locked.map(\.path))
        return try await presentCollections()
    }

    /// Opens the collections that need no password.
    private static func unlock(_ paths: [String]) async throws(AdapterFailure) {
        let service = SessionService.secrets
        let objects = DBusValue.array(paths.map { .objectPath($0) }, of: "o")
        let answer = try await service.values(root, "\(interface).Service", "Unlock", [objects])
        guard answer.count > 1, let prompt = answer[1].stringValue, prompt != "/" else { return }
        // No user is present to type a password.
        _ = try? await service.call(prompt, "\(interface).Prompt", "Dismiss")
    }

    private static func presentCollections() async throws(AdapterFailure) -> [Collection]? {
        let service = SessionService.secrets
        guard try await service.runs() else { return nil }
        let paths = try await service.property("Collections", of: root, "\(interface).Service")
        var collections: [Collection] = []
        for path in paths?.elementsValue?.compactMap(\.stringValue) ?? [] {
            let collection = "\(interface).Collection"
            let items = try await service.property("Items", of: path, collection)
            let isLocked = try await service.property("Locked", of: path, collection)?.booleanValue
            let itemPaths = items?.elementsValue?.compactMap(\.stringValue) ?? []
            collections.append(Collection(path: path, isLocked: isLocked ?? true, items: itemPaths))
        }
        return collections
    }

    /// Whether a collection stays locked, so that its items are invisible.
    static func hasLockedCollection() async throws(AdapterFailure) -> Bool {
        try await collections()?.contains(where: \.isLocked) ?? false
    }

    /// Deletes an object of the service. Throws if the service asks for a prompt, because no user is present to answer
    /// it.
    static func delete(_ path: String, _ kind: String) async throws(AdapterFailure) {
        let prompt = try await SessionService.secrets.call(path, "\(interface).\(kind)", "Delete")?.stringValue
        guard let prompt, prompt != "/" else { return }
        _ = try? await SessionService.secrets.call(prompt, "\(Self.interface).Prompt", "Dismiss")
        throw AdapterFailure(
            "delete \(path): the keyring's service requires a prompt, and no person is there to answer it",
            remedy: "Have the sign-in unlock the session's keyring, or leave the step out (--without keyring)"
        )
    }
}

/// The items of one program, or of a family of programs, in the session's keyring.
public enum SecretItems {
    /// Deletes the items that programs stored under a schema (`xdg:schema`).
    ///
    /// - Returns: the number of deleted items; 0 if no Secret Service runs.
    /// - Throws: ``AdapterFailure`` if an item is left, or if a locked keyring could hold one.
    public static func remove(schema: String) async throws(AdapterFailure) -> Int {
        let (items, locked) = try await search(schema)
        guard locked.isEmpty else {
            let failure =
                "delete the items of \(schema): "
                + "\(locked.count) of them \(locked.count == 1 ? "is" : "are") in a locked keyring"
            throw AdapterFailure(failure, remedy: "Have the sign-in unlock the session's keyring")
        }
        for item in items { try await Keyring.delete(item, "Item") }
        let (left, _) = try await search(schema)
        guard left.isEmpty else {
            let failure =
                "delete the items of \(schema): \(left.count) \(left.count == 1 ? "item is" : "items are") there again"
            throw AdapterFailure(failure, remedy: "End the program that stores them")
        }
        return items.count
    }

    /// The paths of the accessible items and of the items in locked keyrings.
    private static func search(_ schema: String) async throws(AdapterFailure) -> (open: [String], locked: [String]) {
        let service = SessionService.secrets
        guard try await service.runs() else { return ([], []) }
        // Opens keyrings without a password, so that the search reports their items as accessible.
        if try await Keyring.hasLockedCollection() {
            let remedy = "Have the sign-in unlock the session's keyring"
            throw AdapterFailure("look for the items of \(schema): a keyring is locked", remedy: remedy)
        }
        let attributes = DBusValue.dictionary(
            [DBusValue.DictionaryEntry(.string("xdg:schema"), .string(schema))],
            key: "s",
            value: "s"
        )
        let answer = try await service.values(Keyring.root, "\(Keyring.interface).Service", "SearchItems", [attributes])
        func paths(_ index: Int) -> [String] {
            guard answer.indices.contains(index) else { return [] }
            return answer[index].elementsValue?.compactMap(\.stringValue) ?? []
        }
        return (paths(0), paths(1))
    }
}
