import Foundation

#if canImport(AppleNotifications)
import AppleNotifications  // The one line for Linux.
#endif

/// Receives the broadcast of shared device mode as an app on iOS does.
final class AccountChangeReceiver {
    private let name = "SHARED_MODE_CURRENT_ACCOUNT_CHANGED" as CFString
    private let center = CFNotificationCenterGetDarwinNotifyCenter()

    func start() {
        CFNotificationCenterAddObserver(
            center,
            Unmanaged.passUnretained(self).toOpaque(),
            { _, observer, _, _, _ in
                guard let observer else { return }
                Unmanaged<AccountChangeReceiver>.fromOpaque(observer).takeUnretainedValue().accountChanged()
            },
            name,
            nil,
            .deliverImmediately
        )
    }

    deinit { CFNotificationCenterRemoveEveryObserver(center, Unmanaged.passUnretained(self).toOpaque()) }

    /// The notification has no payload: ask who is signed in now, then delete the data of every other user.
    private func accountChanged() { print("the account has changed") }
}

let receiver = AccountChangeReceiver()
receiver.start()
print("listening")
RunLoop.main.run()
