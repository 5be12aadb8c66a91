import CoreFoundationNotifications
import Foundation

/// `add CENTER OBSERVER NAME OBJECT BEHAVIOR`, `add-without-callback …`, `remove CENTER OBSERVER NAME OBJECT`,
/// `remove-every CENTER OBSERVER`, `post CENTER NAME OBJECT USERINFO IMMEDIATELY`,
/// `post-with-options CENTER NAME OBJECT USERINFO OPTIONS`, `suspend CENTER FLAG`, `show-suspended CENTER`.
///
/// Words are separated by one blank, and texts are percent-encoded. `-` is NULL, and so is observer 0.
func perform(_ line: String) {
    let words = line.split(separator: " ", omittingEmptySubsequences: false).map(String.init)
    let center = words.count > 1 ? center(named: words[1]) : nil
    switch words[0] {
    case "add", "add-without-callback":
        CFNotificationCenterAddObserver(
            center,
            UnsafeRawPointer(bitPattern: number(words[2])),
            words[0] == "add" ? heard : nil,
            string(words[3]),
            pointer(object(words[4])),
            CFNotificationSuspensionBehavior(rawValue: number(words[5])) ?? .coalesce
        )
    case "remove":
        let observer = UnsafeRawPointer(bitPattern: number(words[2]))
        CFNotificationCenterRemoveObserver(center, observer, string(words[3]), pointer(object(words[4])))
    case "remove-every": CFNotificationCenterRemoveEveryObserver(center, UnsafeRawPointer(bitPattern: number(words[2])))
    case "post":
        let userInfo = Samples.userInfo(words[4])
        CFNotificationCenterPostNotification(
            center,
            string(words[2]),
            pointer(object(words[3])),
            userInfo,
            words[5] == "true"
        )
        // Later changes by the poster must not reach observers.
        if let userInfo, words[4] == "changing" { Samples.change(userInfo) }
    case "post-with-options":
        CFNotificationCenterPostNotificationWithOptions(
            center,
            string(words[2]),
            pointer(object(words[3])),
            Samples.userInfo(words[4]),
            CFOptionFlags(number(words[5]))
        )
    case "suspend": _CFNotificationCenterSetSuspended(center, words[2] == "true")
    case "show-suspended": say("suspended \(_CFNotificationCenterIsSuspended(center))")
    default: say("unknown command: \(line)")
    }
}

/// The callback of all observers, which prints its arguments.
private let heard: CFNotificationCallback = { center, observer, name, object, userInfo in
    let number = Int(bitPattern: observer)
    let nameOfCenter = centerName(center)
    let isLocal = center === CFNotificationCenterGetLocalCenter()
    let object = object.map { pointer in
        isLocal ? "an object" : describe(Unmanaged<AnyObject>.fromOpaque(pointer).takeUnretainedValue())
    }
    let parts = [
        "heard by \(number) from \(nameOfCenter): \(name.map { describe($0) } ?? "NULL")",
        "object \(object ?? "NULL")",
        "userInfo \(userInfo.map { describe($0) } ?? "NULL")",
        Thread.isMainThread ? "main" : "other",
    ]
    say(parts.joined(separator: ", "))
}

/// Prints a whole line at once.
func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

// MARK: Arguments

private func center(named name: String) -> CFNotificationCenter? {
    switch name {
    case "local": CFNotificationCenterGetLocalCenter()
    case "darwin": CFNotificationCenterGetDarwinNotifyCenter()
    case "distributed": CFNotificationCenterGetDistributedCenter()
    // An object that is not a center.
    case "foreign":
        Unmanaged<CFNotificationCenter>.fromOpaque(Unmanaged.passRetained(makeString("none")).toOpaque())
            .takeUnretainedValue()
    default: nil
    }
}

private func centerName(_ reference: CFNotificationCenter?) -> String {
    ["local", "darwin", "distributed"].first { reference === center(named: $0) } ?? "nowhere"
}

private func number(_ word: String) -> Int { Int(word) ?? 0 }

/// `surrogate` stands for a text that is not Unicode.
private func string(_ word: String) -> CFString? {
    switch word {
    case "-": nil
    case "surrogate": Samples.surrogate
    default: makeString(word.removingPercentEncoding ?? word)
    }
}

/// `number` stands for an object that is not a CFString.
private func object(_ word: String) -> AnyObject? { word == "number" ? Samples.number : string(word) }

/// Never released, because a later command may compare the addresses of these objects.
private func pointer(_ object: AnyObject?) -> UnsafeRawPointer? {
    object.map { UnsafeRawPointer(Unmanaged.passRetained($0).toOpaque()) }
}
