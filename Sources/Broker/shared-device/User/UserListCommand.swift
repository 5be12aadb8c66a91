import ArgumentParser
import Foundation
import SharedDevice
import SharedDeviceBroker

struct UserListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Lists the users, in the order of their names."
    )

    @Flag(help: "As a JSON array, for programs.")
    var json = false

    @OptionGroup var state: StateOptions

    func run() throws {
        try reportingFailure {
            let database = try state.openDatabase(.existing)
            let current = try AccountStore(database: database).state().account
            let users = try UserDirectory(database: database).users().map { user in
                ListedUser(user, isSignedIn: current?.hasIdentifier(user.account.identifier) == true)
            }
            print(json ? try ListedUser.json(users) : ListedUser.table(users))
        }
    }
}

/// A user as the list shows it. The properties' names are the JSON's keys, which programs rely on.
private struct ListedUser: Encodable {
    let identifier: String
    let username: String
    let displayName: String?
    let role: String
    let disabled: Bool
    let signedIn: Bool
    let createdAt: Date

    init(_ user: DirectoryUser, isSignedIn: Bool) {
        identifier = user.account.identifier
        username = user.account.username
        displayName = user.account.displayName
        role = user.role.rawValue
        disabled = user.isDisabled
        signedIn = isSignedIn
        createdAt = user.createdAt
    }

    static func json(_ users: [ListedUser]) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .iso8601
        return String(decoding: try encoder.encode(users), as: UTF8.self)
    }

    static func table(_ users: [ListedUser]) -> String {
        let head = ["USER", "NAME", "STATUS", "ROLE", "IDENTIFIER"]
        let rows = [head] + users.map { [$0.username, $0.displayName ?? "-", $0.status, $0.role, $0.identifier] }
        let widths = head.indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        return rows.map { row in
            zip(row, widths)
                .map { cell, width in cell + String(repeating: " ", count: width - cell.count) }
                .joined(separator: "  ")
                .trimmingCharacters(in: .whitespaces)
        }.joined(separator: "\n")
    }

    private var status: String {
        switch (disabled, signedIn) {
        case (false, false): "enabled"
        case (false, true): "enabled, signed in"
        case (true, false): "disabled"
        case (true, true): "disabled, signed in"
        }
    }
}
