import AppleNotifications
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Testing

private func globalCallback(
    center: CFNotificationCenter?,
    observer: UnsafeMutableRawPointer?,
    name: CFNotificationName?,
    object: UnsafeRawPointer?,
    userInfo: CFDictionary?
) {
    guard let observer = observer else { return }
    Unmanaged<Log>.fromOpaque(observer).takeUnretainedValue().add("global function")
}

nonisolated(unsafe) private let callbackOfFile: CFNotificationCallback = { _, observer, _, _, _ in
    guard let observer else { return }
    Unmanaged<Log>.fromOpaque(observer).takeUnretainedValue().add("constant of the file")
}

private final class Callbacks {
    static func staticFunction(
        _ center: CFNotificationCenter?,
        _ observer: UnsafeMutableRawPointer?,
        _ name: CFNotificationName?,
        _ object: UnsafeRawPointer?,
        _ userInfo: CFDictionary?
    ) {
        Unmanaged<Log>.fromOpaque(observer!).takeUnretainedValue().add("static function")
    }

    private let property: CFNotificationCallback = { _, cfObserver, cfName, _, _ in
        guard let name = cfName?.rawValue as String? else { return }
        Unmanaged<Log>.fromOpaque(UnsafeRawPointer(OpaquePointer(cfObserver)!)).takeUnretainedValue().add(
            name.isEmpty ? "" : "property"
        )
    }

    lazy var lazyProperty: CFNotificationCallback = { _, observer, _, _, _ in
        Unmanaged<Log>.fromOpaque(UnsafeRawPointer(observer!)).takeUnretainedValue().add("lazy property")
    }

    func register(_ observer: UnsafeMutableRawPointer, _ name: String) {
        let local: CFNotificationCallback = { center, observer, name, object, info in
            Unmanaged<Log>.fromOpaque(observer!).takeUnretainedValue().add("constant of a function")
        }
        for callback in [property, lazyProperty, local, Callbacks.staticFunction] {
            CFNotificationCenterAddObserver(
                CFNotificationCenterGetLocalCenter(),
                observer,
                callback,
                name as CFString,
                nil,
                CFNotificationSuspensionBehavior.deliverImmediately
            )
        }
    }
}

@MainActor
private final class Model {
    private(set) var changes = 0

    func start(_ name: String) {
        CFNotificationCenterAddObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            Unmanaged.passUnretained(self).toOpaque(),
            { _, observer, _, _, _ in
                guard let observer else { return }
                let model = Unmanaged<Model>.fromOpaque(observer).takeUnretainedValue()
                model.didChange()
                Task { @MainActor in model.didChange() }
                DispatchQueue.main.async { model.didChange() }
            },
            name as CFString,
            nil,
            .deliverImmediately
        )
    }

    func stop() {
        CFNotificationCenterRemoveEveryObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque())
        )
    }

    private func didChange() { changes += 1 }
}

@Suite("Forms of callbacks")
struct CallbackFormsTests {
    private let heard = Log()
    private var observer: UnsafeMutableRawPointer { Unmanaged.passUnretained(heard).toOpaque() }

    init() { ProcessBus.use() }

    private func post(_ name: String) {
        let center = CFNotificationCenterGetLocalCenter()
        CFNotificationCenterPostNotification(center, CFNotificationName(name as CFString), nil, nil, true)
        CFNotificationCenterRemoveEveryObserver(center, observer)
    }

    // CF-T5
    @Test("closures with any arguments, functions and constants can be callbacks")
    func closures() {
        let center = CFNotificationCenterGetLocalCenter()
        let name = "com.example.callbacks.closures"
        CFNotificationCenterAddObserver(
            center,
            observer,
            { (center, observer, name, object, userInfo) -> Void in
                guard let observer = observer, let name = name else { return }
                let heard = Unmanaged<Log>.fromOpaque(observer).takeUnretainedValue()
                heard.add("all \(name.rawValue as String) \(object == nil) \(userInfo == nil)")
            },
            name as CFString,
            nil,
            .deliverImmediately
        )
        let others: [CFNotificationCallback] = [
            { (_, observer, _, _, _) in
                if let observer = observer {
                    Unmanaged<Log>.fromOpaque(observer).takeUnretainedValue().add("some")
                }
            },
            { Unmanaged<Log>.fromOpaque($1!).takeUnretainedValue().add("short \($4 == nil)") },
            {
                (
                    center: CFNotificationCenter?,
                    observer: UnsafeMutableRawPointer?,
                    name: CFNotificationName?,
                    object: UnsafeRawPointer?,
                    userInfo: CFDictionary?
                ) in
                Unmanaged<Log>.fromOpaque(observer!).takeUnretainedValue().add("with types")
            },
        ]
        let behavior = CFNotificationSuspensionBehavior(rawValue: 4)!
        for callback in others {
            CFNotificationCenterAddObserver(center, observer, callback, name as CFString, nil, behavior)
        }
        CFNotificationCenterAddObserver(center, observer, globalCallback, name as CFString, nil, .deliverImmediately)
        CFNotificationCenterAddObserver(center, observer, callbackOfFile, name as CFString, nil, .deliverImmediately)
        Callbacks().register(observer, name)
        post(name)
        #expect(
            heard.all == [
                "all com.example.callbacks.closures true true", "some", "short true", "with types", "global function",
                "constant of the file", "property", "lazy property", "constant of a function", "static function",
            ]
        )
    }

    // CF-D2, CF-A9
    @Test("a callback can call functions of a main-actor class, directly and later")
    func mainActor() async throws {
        let model = Model()
        let name = "com.example.callbacks.mainActor"
        await model.start(name)
        let center = CFNotificationCenterGetDarwinNotifyCenter()
        CFNotificationCenterPostNotification(center, CFNotificationName(name as CFString), nil, nil, true)
        try await eventually("all three arrive") { await model.changes == 3 }
        await model.stop()
    }

    @Test("a closure may capture values, which are freed with the registration")
    func captures() {
        let center = CFNotificationCenterGetLocalCenter()
        weak var watched: Log?
        do {
            let captured = Log()
            watched = captured
            let callback: CFNotificationCallback = { _, _, _, _, _ in captured.add("heard") }
            let name = "com.example.callbacks.captures" as CFString
            CFNotificationCenterAddObserver(center, observer, callback, name, nil, .deliverImmediately)
        }
        #expect(watched != nil)
        post("com.example.callbacks.captures")
        #expect(watched == nil)
    }
}
