import DBus

/// The items of one program, or of a family of programs, in the session's keyring.
public enum SecretItems {
    /// Deletes the items that programs stored under a schema (`xdg:schema`).
    ///
    /// - Returns: the number of deleted items; 0 if no Secret Service runs.
    /// - Throws: ``AdapterFailure`` if an item is left, or if a locked keyring could hold one.
    public static func remove(schema: String) async throws(AdapterFailure) -> Int {
        let (items, locked) = try await search(schema)
        guard locked.isEmpty else {
            throw AdapterFailure(
                "delete",
                "the items of \(schema)",
                "\(locked.count) of them \(locked.count == 1 ? "is" : "are") in a locked keyring",
                remedy: "Have the sign-in unlock the session's keyring"
            )
        }
        for item in items { try await Keyring.delete(item, "Item") }
        let (left, _) = try await search(schema)
        guard left.isEmpty else {
            throw AdapterFailure(
                "delete",
                "the items of \(schema)",
                "\(left.count) \(left.count == 1 ? "item is" : "items are") there again",
                remedy: "End the program that stores them"
            )
        }
        return items.count
    }

    /// The paths of the accessible items and of the items in locked keyrings.
    private static func search(_ schema: String) async throws(AdapterFailure) -> (open: [String], locked: [String]) {
        let service = SessionService.secrets
        guard try await service.runs() else { return ([], []) }
        // Opens keyrings without a password, so that the search reports their items as accessible.
        if try await Keyring.hasLockedCollection() {
            throw AdapterFailure(
                "look for",
                "the items of \(schema)",
                "a keyring is locked",
                remedy: "Have the sign-in unlock the session's keyring"
            )
        }
        let attributes = DBusValue.dictionary(
            [DBusValue.DictionaryEntry(.string("xdg:schema"), .string(schema))],
            key: "s",
            value: "s"
        )
        let answer = try await service.values(
            Keyring.root,
            "\(Keyring.interface).Service",
            "SearchItems",
            [attributes]
        )
        func paths(_ index: Int) -> [String] {
            guard answer.indices.contains(index) else { return [] }
            return answer[index].elementsValue?.compactMap(\.stringValue) ?? []
        }
        return (paths(0), paths(1))
    }
}
