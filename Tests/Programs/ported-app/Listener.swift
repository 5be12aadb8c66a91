import AppleNotifications
import Foundation

private let darwinCallback: CFNotificationCallback = { _, observer, name, _, _ in
    guard let observer, let name else { return }
    let listener = Unmanaged<Listener>.fromOpaque(observer).takeUnretainedValue()
    listener.heard(name.rawValue as String)
}

/// Observes a name at the Darwin and at the distributed center.
final class Listener {
    static let darwin = CFNotificationCenterGetDarwinNotifyCenter()!
    private let distributed = CFNotificationCenterGetDistributedCenter()
    private let name: String
    private var count = 0

    private static let distributedCallback: CFNotificationCallback = { center, observer, name, object, userInfo in
        let mySelf = Unmanaged<Listener>.fromOpaque(observer!).takeUnretainedValue()
        let object = object.map { Unmanaged<CFString>.fromOpaque($0).takeUnretainedValue() as String }
        mySelf.heard(text: (userInfo as? [String: Any])?["text"] as? String, object: object)
    }

    init(_ name: String) { self.name = name }

    deinit {
        CFNotificationCenterRemoveEveryObserver(Listener.darwin, Unmanaged.passUnretained(self).toOpaque())
        CFNotificationCenterRemoveEveryObserver(distributed, Unmanaged.passUnretained(self).toOpaque())
    }

    func start() {
        let observer = UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque())
        CFNotificationCenterAddObserver(
            Listener.darwin,
            observer,
            darwinCallback,
            name as CFString,
            nil,
            .deliverImmediately
        )
        CFNotificationCenterAddObserver(
            distributed,
            observer,
            Listener.distributedCallback,
            name as CFString,
            nil,
            .coalesce
        )
    }

    fileprivate func heard(_ name: String) {
        count += 1
        say("darwin \(name) \(Thread.isMainThread)")
        DispatchQueue.main.async { say("later \(self.count)") }
    }

    private func heard(text: String?, object: String?) {
        say("distributed \(text ?? "-") \(object ?? "-")")
        switch text {
        case "stop": CFRunLoopStop(CFRunLoopGetMain())
        case "exit": exit(0)
        default: break
        }
    }
}
