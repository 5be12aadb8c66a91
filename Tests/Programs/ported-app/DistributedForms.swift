// Distributed notifications as in existing projects, one form each, compiled in Swift 5 mode.
import AppleNotifications
import Foundation

extension Notification.Name {
    static let themeChanged = Notification.Name("com.example.forms.themeChanged")
    static let killLauncher = Notification.Name("com.example.forms.killLauncher")
}

// MARK: The center, with and without parentheses

final class ThemeObserver {
    let center: DistributedNotificationCenter = .default()
    private let shared = DistributedNotificationCenter.default
    private lazy var later = DistributedNotificationCenter.default
    private var tokens: [any NSObjectProtocol] = []

    init(center: DistributedNotificationCenter = .default) {
        tokens.append(
            DistributedNotificationCenter.default.addObserver(
                forName: Notification.Name("com.example.forms.themeChanged"),
                object: nil,
                queue: nil
            ) { (notification) in
                say("property \(notification.object as? String ?? "-")")
            }
        )
        tokens.append(
            DistributedNotificationCenter.default().addObserver(forName: .themeChanged, object: nil, queue: .main) {
                [weak self] in self?.changed($0)
            }
        )
        tokens.append(
            center.addObserver(forName: .themeChanged, object: "dark", queue: OperationQueue()) { _ in say("queue") }
        )
        tokens.append(
            shared.addObserver(
                forName: .themeChanged,
                object: nil,
                suspensionBehavior: .deliverImmediately,
                queue: nil,
                using: { note in say("suspension behaviour \(note.userInfo?["count"] as? Int ?? -1)") }
            )
        )
    }

    deinit {
        for token in tokens { DistributedNotificationCenter.default().removeObserver(token) }
    }

    private func changed(_ notification: Notification) {
        guard let userInfo = notification.userInfo, let state = userInfo["state"] as? String else { return }
        say("function \(notification.name.rawValue) \(state) \(later === center)")
    }
}

// MARK: Posting

func tryDistributedForms() -> Any {
    let observer = ThemeObserver()
    let launcher = DistributedNotificationCenter.default().addObserver(
        forName: .killLauncher,
        object: nil,
        queue: .main
    ) {
        notification in say("launcher \(notification.object as? String ?? "-")")
    }
    let sequence = DistributedNotificationCenter.default.notifications(named: .killLauncher)
    Task {
        for await notification in sequence { say("sequence \(notification.object as? String ?? "-")") }
    }
    DistributedNotificationCenter.default().postNotificationName(
        .themeChanged,
        object: "dark",
        userInfo: ["state": "Playing", "count": 3],
        deliverImmediately: true
    )
    DistributedNotificationCenter.default.post(name: .killLauncher, object: "com.example.app")
    DistributedNotificationCenter.default.postNotificationName(
        NSNotification.Name("com.example.forms.killLauncher"),
        object: "options",
        userInfo: nil,
        options: [.deliverImmediately]
    )

    // CoreFoundation's functions for the same center.
    CFNotificationCenterAddObserver(
        CFNotificationCenterGetDistributedCenter(),
        nil,
        { _, _, _, object, userInfo in
            let object = object.map { Unmanaged<CFString>.fromOpaque($0).takeUnretainedValue() as String }
            say("CoreFoundation \(object ?? "-") \((userInfo as? [String: Any])?["count"] as? Int ?? -1)")
        },
        "com.example.forms.cf" as CFString,
        Unmanaged.passUnretained("till" as CFString).toOpaque(),
        .hold
    )
    CFNotificationCenterPostNotificationWithOptions(
        CFNotificationCenterGetDistributedCenter(),
        CFNotificationName("com.example.forms.cf" as CFString),
        Unmanaged.passUnretained("till" as CFString).toOpaque(),
        ["count": 1] as CFDictionary,
        kCFNotificationDeliverImmediately
    )
    return (observer, launcher)
}
