import ExampleSupport
import Foundation
import SharedDevice
import SharedDeviceTestKit

/// Somebody who works with the device.
struct Person: Sendable {
    let account: Account
    let password: String

    var username: String { account.username }
    /// As the timeline calls them.
    var name: String { Person.name(of: account.username) }

    /// What all data of theirs has in it.
    var markers: [Marker] {
        [
            Marker(kind: "user name", text: account.username),
            Marker(kind: "display name", text: account.displayName ?? account.username),
            Marker(kind: "data marker", text: DataMarker.text(for: account)),
            Marker(kind: "identifier", text: DataMarker.objectIdentifier(account)),
        ]
    }

    static func name(of username: String) -> String { String(username.prefix { $0 != "@" }).capitalized }
}
