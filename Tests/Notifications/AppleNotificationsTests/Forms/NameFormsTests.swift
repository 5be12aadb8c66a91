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
    @Test("texts, static members and cases of an enum become names and can be read")
    func texts() {
        let (suffix, text) = ("b", "com.example.names.c")
        let names: [CFNotificationName] = [
            CFNotificationName("com.example.names.a" as CFString),
            CFNotificationName("com.example.names.\(suffix)" as CFString),
            CFNotificationName(rawValue: text as CFString), CFNotificationName.init(text as NSString),
            .settingsChanged, .broadcastStarted, Event.started.name,
        ]
        let expected = ["a", "b", "c", "c", "settingsChanged", "broadcastStarted", "started"]
        #expect(names.map { $0.rawValue as String } == expected.map { "com.example.names.\($0)" })
        #expect(Set(Event.allCases.map(\.name)).count == 2)
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
    @Test("names are equal scalar by scalar, and keep the text of a mutable string")
    func equality() {
        let names = ["n", "N", "\u{e9}", "e\u{301}"].map { CFNotificationName($0 as CFString) }
        let again = CFNotificationName(rawValue: "n" as CFString)
        #expect(names.map { $0 == again } == [true, false, false, false])
        #expect(names[2] != names[3])
        #expect(Set(names + [again]).count == 4)
        let text = NSMutableString(string: "before")
        let name = CFNotificationName(text)
        text.setString("after")
        #expect(name.rawValue as String == "before")
    }
}
