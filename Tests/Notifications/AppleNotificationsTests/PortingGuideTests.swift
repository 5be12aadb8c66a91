import Foundation
import NotifyCenterTestKit
import Testing

/// The page quotes the compiler's errors, so that a search for an error leads to the page.
@Suite("The porting guide")
struct PortingGuideTests {
    /// A form that Linux's compiler rejects, and the part of its error that the page quotes.
    struct Form: Sendable {
        let description: String
        var imports = "import AppleNotifications\nimport Foundation"
        var mode = 5
        let source: String
        let words: [String]
    }

    private static let forms = [
        Form(
            description: "no import",
            imports: "import Foundation",
            source: """
                let center = CFNotificationCenterGetDarwinNotifyCenter()
                let name = "n" as CFString
                DistributedNotificationCenter.default().suspended = true
                notify_register_dispatch("n", &token, queue) { _ in }
                """,
            words: [
                "cannot find 'CFNotificationCenterGetDarwinNotifyCenter' in scope",
                "cannot find type 'CFString' in scope",
                "cannot find 'DistributedNotificationCenter' in scope",
                "cannot find 'notify_register_dispatch' in scope",
            ]
        ),
        Form(
            description: "CoreFoundation in place of AppleNotifications",
            imports: "import CoreFoundation\nimport Foundation",
            source: #"let name = CFNotificationName("n" as CFString)"#,
            words: [
                "'String' is not convertible to 'CFString'",
                "'CFNotificationName' (aka 'CFString') cannot be constructed because it has no accessible initializers",
            ]
        ),
        Form(
            description: "CoreFoundation beside AppleNotifications",
            imports: "import AppleNotifications\nimport CoreFoundation\nimport Foundation",
            source: """
                let center = CFNotificationCenterGetDarwinNotifyCenter()
                let name = "n" as CFString
                """,
            words: [
                "'CFString' is ambiguous for type lookup in this context",
                "ambiguous use of 'CFNotificationCenterGetDarwinNotifyCenter()'",
            ]
        ),
        Form(
            description: "a callback as a parameter that does not escape",
            source: """
                func observe(callback: CFNotificationCallback) {
                    CFNotificationCenterAddObserver(nil, nil, callback, nil, nil, .drop)
                }
                """,
            words: ["passing non-escaping parameter 'callback' to function expecting an '@escaping' closure"]
        ),
        Form(
            description: "a C function pointer",
            source: "let callback: @convention(c) (CFNotificationCenter?, CFNotificationName?) -> Void = { _, _ in }",
            words: ["is not representable in Objective-C, so it cannot be used with '@convention(c)'"]
        ),
        Form(
            description: "what Linux's Foundation lacks",
            source: """
                final class Model: NSObject {
                    let selector = #selector(changed(_:))
                    @objc func changed(_ notification: Notification) {}
                }
                let center: NotificationCenter = take(DistributedNotificationCenter.default())
                func take(_ center: NotificationCenter) -> NotificationCenter { center }
                let publisher = DistributedNotificationCenter.default().publisher(for: Notification.Name("n"))
                """,
            words: [
                "'#selector' can only be used with the Objective-C runtime", "Objective-C interoperability is disabled",
                "cannot convert value of type 'DistributedNotificationCenter' to expected argument type "
                    + "'NotificationCenter'",
                "value of type 'DistributedNotificationCenter' has no member 'publisher'",
            ]
        ),
        Form(description: "Darwin", imports: "import Darwin", source: "", words: ["no such module 'Darwin'"]),
        Form(
            description: "a name as a constant in Swift 6 mode",
            mode: 6,
            source: #"enum Names { static let changed = "n" as CFString }"#,
            words: [
                "is not concurrency-safe because non-'Sendable' type 'CFString' (aka 'NSString') may have shared mutable "
                    + "state"
            ]
        ),
    ]

    /// The forms of one language mode are compiled together. A form whose import fails is compiled alone, because the
    /// compiler then reports no other error.
    private static let modules = [
        forms.filter { $0.mode == 5 && !$0.source.isEmpty }, forms.filter { $0.source.isEmpty },
        forms.filter { $0.mode == 6 },
    ]

    @Test("it quotes the compiler's error for each form that does not compile", arguments: modules.indices)
    func words(ofModule index: Int) async throws {
        let directory = try TemporaryDirectory("notify-center-porting")
        let forms = Self.modules[index]
        let files = forms.indices.map { "\(directory.path)/form\($0).swift" }
        for (number, form) in forms.enumerated() {
            try "\(form.imports)\nfunc form\(number)() {\n\(form.source)\n}\n"
                .write(toFile: files[number], atomically: true, encoding: .utf8)
        }
        let compiler = try Self.compile(files, mode: forms[0].mode)
        #expect(await compiler.exitStatus() == 1)
        let page = try Self.text.replacing("\n", with: " ")
        for (file, form) in zip(files, forms) {
            let errors = compiler.errorText.split(separator: "\n").filter { $0.hasPrefix("\(file):") }
            for words in form.words {
                #expect(errors.contains { $0.contains(words) }, "\(form.description): \(words)")
                #expect(page.contains(words), "\(form.description): \(words)")
            }
        }
    }

    @Test("its declarations let a file import CoreFoundation too", arguments: [5, 6])
    func declarations(mode: Int) async throws {
        let block = try #require(
            try Self.text.firstMatch(of: /```swift\n( *import AppleNotifications\n\n *typealias [^`]*)```/)
        )
        let source = """
            import AppleNotifications
            import CoreFoundation
            import Foundation

            extension CFNotificationName { static let changed = CFNotificationName("changed" as CFString) }

            func observe(_ callback: @escaping CFNotificationCallback, _ objects: [CFTypeRef], _ array: CFArray) {
                let center = CFNotificationCenterGetDarwinNotifyCenter()
                CFNotificationCenterAddObserver(center, nil, callback, "changed" as CFString, nil, .deliverImmediately)
                CFNotificationCenterAddObserver(
                    CFNotificationCenterGetDistributedCenter(), nil, { _, _, name, _, userInfo in
                        print(name!.rawValue as String, userInfo as? [String: Any] ?? [:])
                    }, CFNotificationName.changed.rawValue, nil, .hold)
                let userInfo = ["on": kCFBooleanTrue!, "off": kCFBooleanFalse!] as CFDictionary
                CFNotificationCenterPostNotification(center, .changed, nil, userInfo, true)
                CFNotificationCenterPostNotificationWithOptions(
                    CFNotificationCenterGetLocalCenter(), .changed, nil, userInfo,
                    kCFNotificationDeliverImmediately | kCFNotificationPostToAllSessions)
                CFNotificationCenterRemoveObserver(center, nil, .changed, nil)
                CFNotificationCenterRemoveEveryObserver(center, nil)
                print(CFAbsoluteTimeGetCurrent())
                CFRunLoopStop(CFRunLoopGetMain())
                CFRunLoopRun()
            }
            """
        let directory = try TemporaryDirectory("notify-center-porting")
        let files = ["names", "observer"].map { "\(directory.path)/\($0).swift" }
        for (file, text) in zip(files, [String(block.1), source]) {
            try text.write(toFile: file, atomically: true, encoding: .utf8)
        }
        let compiler = try Self.compile(files, mode: mode)
        #expect(await compiler.exitStatus() == 0, "\(compiler.errorText)")
    }

    private static func compile(_ files: [String], mode: Int) throws -> ChildProcess {
        let products = (ChildProcess.built("x") as NSString).deletingLastPathComponent
        // The directories of the C modules that the Swift modules need.
        let maps = "\(repository)/Sources/Bus/CDBus"
        let script = """
            products=$0 maps=$1 mode=$2
            shift 2
            swiftc -typecheck -wmo -swift-version $mode -I "$products/Modules" \
                $(pkg-config --cflags dbus-1 | sed 's/-I/-Xcc -I/g') \
                $(printf ' -Xcc -fmodule-map-file=%s' "$maps/module.modulemap" "$products"/*.build/module.modulemap) "$@"
            """
        return try ChildProcess("sh", ["-c", script, products, maps, "\(mode)"] + files)
    }

    private static var text: String {
        get throws { try String(contentsOfFile: "\(repository)/\(page)", encoding: .utf8) }
    }

    private static let page = "Sources/Notifications/NotifyCenter/NotifyCenter.docc/PortingGuide.md"
    private static let repository = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("../../..").standardized.path
}
