import AppleNotifications
import Foundation

/// Callbacks that are constants of the main actor and call its functions. They need only compile; no test calls them.
@MainActor
final class ViewModel {
    static var shared = ViewModel()
    private(set) var changes = 0
    private let callback: CFNotificationCallback = { _, _, name, _, _ in
        guard let name = name?.rawValue as String? else { return }
        say(name)
    }

    func observe() {
        let observer = Unmanaged.passUnretained(self).toOpaque()
        let callback: CFNotificationCallback = { _, observer, name, _, userInfo in
            guard let observer, let name else { return }
            let model = Unmanaged<ViewModel>.fromOpaque(observer).takeUnretainedValue()
            model.didChange(name: name, userInfo: userInfo)
        }
        for name in ["com.example.a", "com.example.b"] {
            CFNotificationCenterAddObserver(
                CFNotificationCenterGetDarwinNotifyCenter(),
                observer,
                callback,
                name as CFString,
                nil,
                .deliverImmediately
            )
        }
        CFNotificationCenterAddObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            observer,
            self.callback,
            "com.example.c" as CFString,
            nil,
            .deliverImmediately
        )
    }

    private func didChange(name: CFNotificationName, userInfo: CFDictionary?) { changes += 1 }
}
