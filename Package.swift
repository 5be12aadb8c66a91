// swift-tools-version:6.2

import PackageDescription

let package = Package(
    name: "notify-center",
    products: [
        // Light: libdbus-1 and the standard library, nothing else.
        .library(name: "NotifyCenter", targets: ["NotifyCenter"]),
        .library(name: "NotifyCenterTestKit", targets: ["NotifyCenterTestKit"]),
        // notify(3): `import notify`; and for C, C++ and whatever else links a shared library: -ldarwin-notify. The name `libnotify`
        // is that of GNOME's.
        .library(name: "notify", targets: ["notify"]),
        .library(name: "darwin-notify", type: .dynamic, targets: ["notify"]),
        .executable(name: "notifyd", targets: ["notifyd"]),
        .executable(name: "notifyutil", targets: ["notifyutil"]),
        // Apple source: each stands by itself, see the porting guide. These link Foundation.
        .library(name: "NotifyCenterFoundation", targets: ["NotifyCenterFoundation"]),
        .library(name: "AppleNotifications", targets: ["AppleNotifications"]),
        .library(name: "CoreFoundationNotifications", targets: ["CoreFoundationNotifications"]),
        // The same for C, C++ and whatever else links a shared library: -lCFNotificationCenter. SwiftPM cannot link it with
        // `--static-swift-stdlib`; name another `--product` there.
        .library(name: "CFNotificationCenter", type: .dynamic, targets: ["CoreFoundationNotifications"]),
        // What an app on a shared device links.
        .library(name: "SharedDevice", targets: ["SharedDevice"]),
        // The same with MSAL's names, for code that was written for shared device mode on iOS: `import MSAL`.
        .library(name: "MSALCompatibility", targets: ["MSAL"]),
        // A device of a test's own: bus, broker, users, apps, faults.
        .library(name: "SharedDeviceTestKit", targets: ["SharedDeviceTestKit"]),
        // The device's side: the service and its administration.
        .library(name: "SharedDeviceBroker", targets: ["SharedDeviceBroker"]),
        .executable(name: "shared-device-broker", targets: ["shared-device-broker"]),
        .executable(name: "shared-device", targets: ["shared-device"]),
    ],
    dependencies: [
        // SQLite for the broker's account store (and an example's orders): migrations, transactions, WAL.
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        // Command lines of the broker, its administration and the examples. Not of notifyutil, whose grammar is Darwin's.
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        // The broker's log, in the form that Swift services share.
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    ],
    targets: [
        // MARK: Floor 0: C libraries
        .systemLibrary(name: "CDBus", pkgConfig: "dbus-1", providers: [.apt(["libdbus-1-dev"])]),
        // scrypt for the embedded user directory: libxcrypt's, because every Linux has it and its "$7$" strings are a
        // standard form that other tools can check.
        .systemLibrary(name: "CCrypt", pkgConfig: "libcrypt", providers: [.apt(["libcrypt-dev"])]),

        // MARK: Floors 1 and 2: notifications
        .target(name: "DBusTransport", dependencies: ["CDBus"]),
        .target(name: "NotifyCenter", dependencies: ["DBusTransport"]),

        // MARK: Floors 3 and 4: notify(3)
        // The headers.
        .target(name: "CNotify"),
        // Queues and blocks of C callers.
        .target(name: "CDispatchQueues"),
        // Calls of Linux that Swift's Glibc module lacks.
        .target(name: "CLinux"),
        // What library and service say to each other, and the access rules that both keep.
        .target(name: "NotifydProtocol", dependencies: ["DBusTransport", "CLinux"]),
        .target(
            name: "notify",
            dependencies: ["CNotify", "CDispatchQueues", "CLinux", "NotifydProtocol", "NotifyCenter", "DBusTransport"]
        ),
        .target(name: "NotifyDaemon", dependencies: ["NotifydProtocol", "NotifyCenter", "DBusTransport", "CLinux"]),

        // MARK: Floors 3 and 4: Apple's spellings
        .target(name: "NotifyCenterFoundation", dependencies: ["NotifyCenter", "DBusTransport"]),
        .target(name: "AppleNotifications", dependencies: ["NotifyCenterFoundation", "NotifyCenter", "DBusTransport"]),
        // What CoreFoundation's headers hide on Linux.
        .target(name: "CCoreFoundationNotifications"),
        .target(
            name: "CoreFoundationNotifications",
            dependencies: ["NotifyCenter", "DBusTransport", "CCoreFoundationNotifications"]
        ),

        // MARK: Floor 3: what others link
        .target(name: "NotifyCenterTestKit", dependencies: ["NotifyCenter", "DBusTransport", "CLinux"]),
        .target(name: "SharedDevice", dependencies: ["NotifyCenter", "DBusTransport", "CLinux"]),

        .target(name: "MSAL", dependencies: ["SharedDevice", "NotifyCenter", "DBusTransport"]),
        .target(
            name: "SharedDeviceTestKit",
            dependencies: ["SharedDevice", "NotifyCenterTestKit", "NotifyCenter", "DBusTransport"]
        ),

        // MARK: Floor 4: the device's side
        .target(
            name: "SharedDeviceBroker",
            dependencies: [
                "SharedDevice", "NotifyCenter", "DBusTransport", "CCrypt",
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "Logging", package: "swift-log"),
            ]
        ),

        // MARK: Floor 5: programs
        .executableTarget(name: "notifyd", dependencies: ["NotifyDaemon", "NotifydProtocol", "DBusTransport"]),
        .executableTarget(
            name: "notifyutil",
            dependencies: ["notify", "NotifydProtocol", "NotifyCenter", "DBusTransport"]
        ),
        .executableTarget(
            name: "shared-device-broker",
            dependencies: [
                "SharedDeviceBroker", "NotifyCenter", "DBusTransport",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
            ]
        ),
        .executableTarget(
            name: "shared-device",
            dependencies: [
                "SharedDeviceBroker", "SharedDevice", "SharedDeviceTestKit", "NotifyCenter", "DBusTransport",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ]
        ),

        // MARK: Examples: listener apps, each a process of its own, and the demonstration that runs them
        .target(
            name: "ExampleSupport",
            dependencies: [
                "SharedDevice", "NotifyCenter",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Examples/Support"
        ),
        .executableTarget(
            name: "point-of-sale",
            dependencies: [
                "ExampleSupport", "SharedDevice",
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Examples/PointOfSale"
        ),
        .executableTarget(
            name: "flight-briefing",
            dependencies: [
                "ExampleSupport", "SharedDevice",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Examples/FlightBriefing"
        ),
        .executableTarget(
            name: "field-service",
            dependencies: [
                "ExampleSupport", "SharedDevice",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Examples/FieldService"
        ),
        .executableTarget(
            name: "demo",
            dependencies: [
                "ExampleSupport", "SharedDeviceTestKit", "NotifyCenterTestKit", "SharedDevice", "NotifyCenter",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                // It starts these programs, and finds them built beside itself.
                "point-of-sale", "flight-briefing", "field-service", "shared-device", "shared-device-broker",
            ],
            path: "Examples/Demo"
        ),

        // MARK: Tests
        .testTarget(name: "DBusTransportTests", dependencies: ["DBusTransport", "NotifyCenterTestKit"]),
        // A process with a center that does what it is told, for the tests between processes.
        .executableTarget(
            name: "center-probe",
            dependencies: ["NotifyCenter"],
            path: "Tests/NotifyCenterTests/CenterProbe"
        ),
        .testTarget(
            name: "NotifydProtocolTests",
            dependencies: ["NotifydProtocol", "DBusTransport"]
        ),
        // A process that uses notify(3) as its standard input says.
        .executableTarget(
            name: "notify-probe",
            dependencies: ["notify"],
            path: "Tests/NotifyTests/NotifyProbe"
        ),
        // Swift as it is written on Apple.
        .executableTarget(
            name: "ported-notify",
            dependencies: ["notify"],
            path: "Tests/NotifyTests/PortedNotify",
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        .testTarget(
            name: "NotifyTests",
            dependencies: [
                "notify", "NotifydProtocol", "NotifyCenter", "DBusTransport", "NotifyCenterTestKit",
                // Started as processes.
                "notify-probe", "ported-notify", "notifyd", "notifyutil",
            ],
            exclude: ["NotifyProbe", "PortedNotify"]
        ),
        // Another process, and another user, with registrations: does what its standard input says.
        .executableTarget(
            name: "notifyd-client",
            dependencies: ["NotifydProtocol", "DBusTransport"],
            path: "Tests/NotifyDaemonTests/NotifydClient"
        ),
        // notify(3) in C and C++, built and run as programs of others are.
        .testTarget(
            name: "CProgramTests",
            dependencies: ["NotifydProtocol", "NotifyCenterTestKit", "notifyd"],
            exclude: ["Programs"]
        ),
        .testTarget(
            name: "NotifyDaemonTests",
            dependencies: [
                "NotifyDaemon", "NotifydProtocol", "NotifyCenter", "DBusTransport", "NotifyCenterTestKit", "notifyd",
                "notifyd-client",
            ],
            exclude: ["NotifydClient"]
        ),
        .testTarget(
            name: "NotifyutilTests",
            dependencies: [
                "notify", "NotifydProtocol", "NotifyCenter", "DBusTransport", "NotifyCenterTestKit", "notifyutil",
                "notifyd",
            ]
        ),
        .testTarget(
            name: "NotifyCenterTests",
            dependencies: ["NotifyCenter", "DBusTransport", "NotifyCenterTestKit", "notifyutil", "center-probe"],
            exclude: ["CenterProbe"]
        ),
        // The other process of the tests: observes and posts as its arguments say.
        .executableTarget(
            name: "foundation-probe",
            dependencies: ["NotifyCenterFoundation"],
            path: "Tests/NotifyCenterFoundationTests/FoundationProbe"
        ),
        .testTarget(
            name: "NotifyCenterFoundationTests",
            dependencies: [
                "NotifyCenterFoundation", "NotifyCenter", "DBusTransport", "NotifyCenterTestKit", "foundation-probe",
            ],
            exclude: ["FoundationProbe"]
        ),
        // Swift as it is written on Apple, in the language mode that most of it is in.
        .executableTarget(
            name: "ported-app",
            dependencies: ["AppleNotifications"],
            path: "Tests/AppleNotificationsTests/PortedApp",
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        .testTarget(
            name: "AppleNotificationsTests",
            dependencies: ["AppleNotifications", "NotifyCenter", "DBusTransport", "NotifyCenterTestKit", "ported-app"],
            exclude: ["PortedApp"]
        ),
        // Code as it is written for Apple's platforms: it imports nothing of this package.
        .executableTarget(
            name: "unmodified-app",
            dependencies: ["CoreFoundationNotifications"],
            path: "Tests/CoreFoundationNotificationsTests/UnmodifiedApp"
        ),
        // Calls what its standard input says, and prints what its callbacks are called with.
        .executableTarget(
            name: "scripted-app",
            dependencies: ["CoreFoundationNotifications"],
            path: "Tests/CoreFoundationNotificationsTests/ScriptedApp"
        ),
        .testTarget(
            name: "CoreFoundationNotificationsTests",
            dependencies: [
                "CoreFoundationNotifications", "AppleNotifications", "NotifyCenter", "DBusTransport",
                "NotifyCenterTestKit",
                // Started as processes.
                "unmodified-app", "scripted-app",
            ],
            exclude: ["UnmodifiedApp", "ScriptedApp"]
        ),
        // Commits in a loop until it is killed, for the tests of the store.
        .executableTarget(
            name: "commit-loop",
            dependencies: ["SharedDeviceBroker", "SharedDevice"],
            path: "Tests/SharedDeviceBrokerTests/CommitLoop"
        ),
        .testTarget(
            name: "SharedDeviceBrokerTests",
            dependencies: [
                "SharedDeviceBroker", "SharedDevice", "NotifyCenter", "DBusTransport", "NotifyCenterTestKit",
                // Started as processes.
                "shared-device", "shared-device-broker", "commit-loop",
                .product(name: "GRDB", package: "GRDB.swift"),
            ],
            exclude: ["CommitLoop", "Fixtures"]
        ),
        // Swift as it is written for shared device mode on iOS, in the language mode that most of it is in.
        .executableTarget(
            name: "ported-shared-device-app",
            dependencies: ["MSAL", "AppleNotifications"],
            path: "Tests/MSALTests/PortedSharedDeviceApp",
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        .testTarget(
            name: "MSALTests",
            dependencies: [
                "MSAL", "SharedDevice", "NotifyCenter", "DBusTransport", "NotifyCenterTestKit",
                // Started as processes.
                "shared-device", "shared-device-broker", "ported-shared-device-app", "notifyutil",
            ],
            exclude: ["PortedSharedDeviceApp", "Fixtures"]
        ),
        .testTarget(
            name: "SharedDeviceTestKitTests",
            dependencies: [
                "SharedDeviceTestKit", "SharedDevice", "NotifyCenter", "DBusTransport", "NotifyCenterTestKit",
                // Started as processes.
                "shared-device", "shared-device-broker", "point-of-sale", "flight-briefing", "field-service",
            ]
        ),
        // An app that cleans up, and is killed at the point that its arguments name.
        .executableTarget(
            name: "cleanup-probe",
            dependencies: ["SharedDevice", "NotifyCenter"],
            path: "Tests/SharedDeviceTests/CleanupProbe"
        ),
        // An app that begins its cleanup and never ends it.
        .executableTarget(
            name: "cleanup-beginner",
            dependencies: ["SharedDevice", "NotifyCenter"],
            path: "Tests/SharedDeviceTests/CleanupBeginner"
        ),
        // An app that signs out with a PATH of the test's own.
        .executableTarget(
            name: "signout-probe",
            dependencies: ["SharedDevice", "NotifyCenter", "DBusTransport"],
            path: "Tests/SharedDeviceTests/SignoutProbe"
        ),
        // An app that follows the account, and does what its standard input says.
        .executableTarget(
            name: "listener-app",
            dependencies: [
                "SharedDevice", "NotifyCenter", "DBusTransport",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Tests/SharedDeviceTests/ListenerProgram"
        ),
        .testTarget(
            name: "SharedDeviceTests",
            dependencies: [
                "SharedDevice", "SharedDeviceBroker", "NotifyCenter", "DBusTransport", "NotifyCenterTestKit",
                .product(name: "GRDB", package: "GRDB.swift"),
                "ExampleSupport",
                // Started as processes.
                "notifyutil", "shared-device", "shared-device-broker", "point-of-sale", "flight-briefing",
                "field-service",
                "demo", "cleanup-probe", "cleanup-beginner", "signout-probe", "listener-app",
            ],
            exclude: ["CleanupProbe", "CleanupBeginner", "SignoutProbe", "ListenerProgram"]
        ),
        // A listener app that does what its standard input says, and what its environment has it do wrong.
        .executableTarget(
            name: "torture-app",
            dependencies: ["SharedDevice", "NotifyCenter", "DBusTransport"],
            path: "Tests/SharedDeviceTortureTests/TortureApp"
        ),
        .testTarget(
            name: "SharedDeviceTortureTests",
            dependencies: [
                "SharedDeviceBroker", "SharedDevice", "NotifyCenter", "DBusTransport", "NotifyCenterTestKit",
                .product(name: "GRDB", package: "GRDB.swift"),
                // Started as processes.
                "torture-app", "shared-device-broker",
            ],
            exclude: ["TortureApp"]
        ),
    ],
    swiftLanguageModes: [.v6]
)

for target in package.targets where [.executable, .test, .regular].contains(target.type) {
    target.swiftSettings =
        (target.swiftSettings ?? []) + [
            // `any` is written where an existential costs something (SE-0335).
            .enableUpcomingFeature("ExistentialAny"),
            // A file sees the members of the modules that it imports, and of no others (SE-0444).
            .enableUpcomingFeature("MemberImportVisibility"),
            // An import is an implementation detail unless it says `public` (SE-0409).
            .enableUpcomingFeature("InternalImportsByDefault"),
            // A nonisolated async function runs on its caller's actor (SE-0461).
            .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
        ]
    // ThreadSanitizer reports false races for `Synchronization.Mutex`; under it, Locked is a pthread mutex.
    if Context.environment["NOTIFY_CENTER_TSAN"] != nil {
        target.swiftSettings?.append(.define("NOTIFY_CENTER_TSAN"))
    }
}
