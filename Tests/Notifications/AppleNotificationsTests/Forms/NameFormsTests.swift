import AppleNotifications
import Foundation
import Testing

extension CFNotificationName {
    fileprivate static let settingsChanged = CFNotificationName("com.example.names.settingsChanged" as CFString)
    fileprivate static var broadcastStarted: CFNotificationName {
        .init("com.example.names.broadcastStarted" as CFString)
    }
}

private enum Event: String, CaseIterable {
    case started, stopped

    var name: CFNotificationName { CFNotificationName(rawValue: "com.example.names.\(rawValue)" as CFString) }
}

@Suite("Forms of names")
struct NameFormsTests {
    // CF-T6
    @Test("a literal, an interpolation and a variable become names")
    func texts() {
        let suffix = "b"
        let text = "com.example.names.c"
        #expect(CFNotificationName("com.example.names.a" as CFString).rawValue as String == "com.example.names.a")
        #expect(
            CFNotificationName("com.example.names.\(suffix)" as CFString).rawValue as String == "com.example.names.b"
        )
        #expect(CFNotificationName(rawValue: text as CFString).rawValue as String == text)
        #expect(CFNotificationName.init(text as CFString) == CFNotificationName(text as NSString))
    }

    // CF-T6
    @Test("names can be static members of CFNotificationName or come from an enum")
    func members() {
        let names: [CFNotificationName] = [.settingsChanged, .broadcastStarted, Event.started.name]
        #expect(
            names.map { $0.rawValue as String } == [
                "com.example.names.settingsChanged", "com.example.names.broadcastStarted", "com.example.names.started",
            ]
        )
        #expect(Set(Event.allCases.map(\.name)).count == 2)
    }

    // CF-T6
    @Test("a callback's optional name can be read in every usual way")
    func reading() {
        let name: CFNotificationName? = .settingsChanged
        let optional = name?.rawValue as String?
        let forced = name!.rawValue as String
        let converted = String(name!.rawValue)
        let chained = (name?.rawValue as? NSString)?.lastPathComponent
        #expect(
            [optional, forced, converted, chained] == Array(repeating: "com.example.names.settingsChanged", count: 4)
        )
        guard let identifier = name?.rawValue as String? else { return #expect(Bool(false)) }
        #expect(Notification.Name(rawValue: identifier).rawValue as CFString == name?.rawValue)
        let nothing: CFNotificationName? = nil
        #expect(nothing?.rawValue as String? == nil)
    }

    // CF-M3
    @Test("names are equal if their text is the same, scalar by scalar")
    func equality() {
        #expect(CFNotificationName("n" as CFString) == CFNotificationName("n" as CFString))
        #expect(CFNotificationName("n" as CFString) != CFNotificationName("N" as CFString))
        let (one, two) = (CFNotificationName("\u{e9}" as CFString), CFNotificationName("e\u{301}" as CFString))
        #expect(one != two)
        #expect(!(one == two))
        #expect(Set([one, two]).count == 2)
        #expect(Set([CFNotificationName("n" as CFString), CFNotificationName(rawValue: "n" as CFString)]).count == 1)
    }

    @Test("a name keeps the text that a mutable string had when the name was made")
    func mutableString() {
        let text = NSMutableString(string: "before")
        let name = CFNotificationName(text)
        text.setString("after")
        #expect(name.rawValue as String == "before")
    }
}
