// Darwin notifications as in existing projects, one form each, compiled in Swift 5 mode.
import AppleNotifications
import Foundation

// MARK: Names

extension CFNotificationName {
    static let formsStarted = CFNotificationName("com.example.forms.started" as CFString)
    static var formsStopped: CFNotificationName { .init(rawValue: "com.example.forms.stopped" as CFString) }
}

enum BroadcastEvent: String, CaseIterable {
    case paused, resumed

    var identifier: String { "com.example.forms.\(rawValue)" }
    var name: CFNotificationName { CFNotificationName(identifier as CFString) }
}

private let cfName = "com.example.forms.constant" as CFString

// MARK: A function as callback, and `self` as observer

private func sampleCallback(
    center: CFNotificationCenter?,
    observer: UnsafeMutableRawPointer?,
    name: CFNotificationName?,
    object: UnsafeRawPointer?,
    userInfo: CFDictionary?
) {
    guard let observer = observer else { return }
    let handler = Unmanaged<SampleHandler>.fromOpaque(observer).takeUnretainedValue()
    handler.changed(name?.rawValue as String? ?? "-")
}

final class SampleHandler: NSObject {
    private let center = CFNotificationCenterGetDarwinNotifyCenter()

    override init() {
        super.init()
        let observer = UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque())
        for event in BroadcastEvent.allCases {
            CFNotificationCenterAddObserver(
                center,
                observer,
                sampleCallback,
                event.identifier as CFString,
                nil,
                .deliverImmediately
            )
        }
        CFNotificationCenterAddObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            observer,
            sampleCallback,
            cfName,
            nil,
            CFNotificationSuspensionBehavior.drop
        )
    }

    deinit {
        CFNotificationCenterRemoveEveryObserver(center, UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque()))
    }

    fileprivate func changed(_ name: String) { say("function \(name)") }
}

// MARK: A shared center of closures

final class DarwinNotificationCenter {
    static let shared = DarwinNotificationCenter()
    private var handlers: [String: [() -> Void]] = [:]

    private init() {}

    func observe(_ name: String, using handler: @escaping () -> Void) {
        handlers[name, default: []].append(handler)
        guard handlers[name]?.count == 1 else { return }
        let callback: CFNotificationCallback = { _, observer, name, _, _ in
            guard let observer = observer, let name = name else { return }
            let center = Unmanaged<DarwinNotificationCenter>.fromOpaque(observer).takeUnretainedValue()
            DispatchQueue.main.async {
                for handler in center.handlers[name.rawValue as String] ?? [] { handler() }
            }
        }
        CFNotificationCenterAddObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            Unmanaged.passUnretained(self).toOpaque(),
            callback,
            name as CFString,
            nil,
            .deliverImmediately
        )
    }

    func remove(_ name: CFNotificationName) {
        handlers[name.rawValue as String] = nil
        CFNotificationCenterRemoveObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            Unmanaged.passUnretained(self).toOpaque(),
            name,
            nil
        )
    }

    func post(_ name: CFNotificationName) {
        CFNotificationCenterPostNotification(CFNotificationCenterGetDarwinNotifyCenter(), name, nil, nil, true)
    }
}

// MARK: A callback as a parameter

enum Registrar {
    static func observe(_ name: String, observer: UnsafeRawPointer? = nil, callback: @escaping CFNotificationCallback) {
        let center = CFNotificationCenterGetDarwinNotifyCenter()
        CFNotificationCenterAddObserver(center, observer, callback, name as CFString, nil, .deliverImmediately)
    }

    static func observe(_ name: CFNotificationName, optional callback: CFNotificationCallback?) {
        guard let center = CFNotificationCenterGetDarwinNotifyCenter() else { return }
        CFNotificationCenterAddObserver(center, nil, callback, name.rawValue, nil, .coalesce)
    }
}

// MARK: A box in the pointer, and a stream

final class Box<Value: Sendable>: Sendable {
    let value: Value
    init(_ value: Value) { self.value = value }
}

func stream(of name: String) -> AsyncStream<Void> {
    AsyncStream { continuation in
        let box = Box(continuation)
        CFNotificationCenterAddObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            Unmanaged.passRetained(box).toOpaque(),
            { _, observer, _, _, _ in
                Unmanaged<Box<AsyncStream<Void>.Continuation>>.fromOpaque(observer!).takeUnretainedValue().value.yield()
            },
            name as CFString,
            nil,
            .deliverImmediately
        )
        continuation.onTermination = { _ in
            let observer = Unmanaged.passUnretained(box)
            CFNotificationCenterRemoveEveryObserver(CFNotificationCenterGetDarwinNotifyCenter(), observer.toOpaque())
            observer.release()
        }
    }
}

/// Registers each form, and posts its notifications.
func tryDarwinForms() -> Any {
    let handler = SampleHandler()
    DarwinNotificationCenter.shared.observe("com.example.forms.started") { say("closure started") }
    DarwinNotificationCenter.shared.observe("com.example.forms.stopped") { say("removed") }
    DarwinNotificationCenter.shared.remove(.formsStopped)
    Registrar.observe("com.example.forms.parameter") { _, _, name, _, _ in
        say("parameter \(name!.rawValue as String)")
    }
    Registrar.observe(
        .formsStarted,
        optional: { _, _, name, _, _ in say("optional \(name?.rawValue as String? ?? "-")") }
    )
    Registrar.observe(.formsStarted, optional: nil)
    let stream = stream(of: "com.example.forms.stream")
    Task {
        for await _ in stream { say("stream") }
    }
    for event in BroadcastEvent.allCases { DarwinNotificationCenter.shared.post(event.name) }
    for name in ["constant", "started", "stopped", "parameter", "stream"] {
        DarwinNotificationCenter.shared.post(CFNotificationName("com.example.forms.\(name)" as CFString))
    }
    return handler
}
