// swift-tools-version:6.2

import PackageDescription

/// The console's files that draw a sign-out: the pages of checks have them in them.
let console: [Resource] = [
    "dom.js", "words.js", "day.js", "rounds.js", "drawing.js", "report.js", "shared-device.css",
].map { .embedInCode("Console/\($0)") }

/// What the packages in `Extensions` are made of. These modules change as the project needs it: for an app, the libraries
/// in `products` are the interface.
let partsOfExtensions = [
    "AppAdapters", "Basics", "CLinux", "CommandParts", "Cryptography", "DBus", "DemoStage", "DeviceConfiguration",
    "DeviceStorage",
    "EmbeddedIdentity", "ExampleSupport", "Identity", "SQLite", "ServiceSupport",
]

let argumentParser: Target.Dependency = .product(name: "ArgumentParser", package: "swift-argument-parser")
let logging: Target.Dependency = .product(name: "Logging", package: "swift-log")

// The folders below are in the order of their use: a target uses those above it, never one below.
let package = Package(
    name: "notify-center",
    products: [
        // NotifyCenter and notify are light: libdbus-1 and the standard library. Those for Apple source link Foundation.
        .library(name: "NotifyCenter", targets: ["NotifyCenter"]),
        .library(name: "NotifyCenterTestKit", targets: ["NotifyCenterTestKit"]),
        .library(name: "notify", targets: ["notify"]),
        .library(name: "NotifyCenterFoundation", targets: ["NotifyCenterFoundation"]),
        .library(name: "AppleNotifications", targets: ["AppleNotifications"]),
        .library(name: "CoreFoundationNotifications", targets: ["CoreFoundationNotifications"]),
        .library(name: "SharedDevice", targets: ["SharedDevice"]),
        .library(name: "SharedDeviceTestKit", targets: ["SharedDeviceTestKit"]),
        // MSAL's names, for code that was written for shared device mode on iOS: `import MSAL`.
        .library(name: "MSALCompatibility", targets: ["MSAL"]),
        // For C, C++ …: -ldarwin-notify. The name `libnotify` is that of GNOME's.
        .library(name: "darwin-notify", type: .dynamic, targets: ["notify"]),
        // The same of CoreFoundation's functions. SwiftPM cannot link it with `--static-swift-stdlib`; name another product there.
        .library(name: "CFNotificationCenter", type: .dynamic, targets: ["CoreFoundationNotifications"]),
        .executable(name: "notifyd", targets: ["notifyd"]),
        .executable(name: "notifyutil", targets: ["notifyutil"]),
        .executable(name: "notify-center", targets: ["notify-center"]),
        .executable(name: "shared-device", targets: ["shared-device"]),
        .executable(name: "shared-device-broker", targets: ["shared-device-broker"]),
        .executable(name: "shared-device-cleanup", targets: ["shared-device-cleanup"]),
        // For the demonstrations of the extensions.
        .executable(name: "point-of-sale", targets: ["point-of-sale"]),
        .executable(name: "flight-briefing", targets: ["flight-briefing"]),
        .executable(name: "field-service", targets: ["field-service"]),
    ] + partsOfExtensions.map { .library(name: $0, targets: [$0]) },
    dependencies: [
        // Command lines, except notifyutil's, whose grammar is Darwin's.
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        // The broker's log, in the form that Swift services share.
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    ],
    targets: [
        // MARK: Basics: what every part uses. No D-Bus, no Foundation
        // Calls of Linux that Swift's Glibc module lacks.
        .target(name: "CLinux", path: "Sources/Basics/CLinux"),
        // Locks, threads, starting programs, watching files, JSON from strangers, the version.
        .target(name: "Basics", dependencies: ["CLinux"], path: "Sources/Basics/Basics"),
        // OpenSSL 3, not swift-crypto: that is BoringSSL compiled anew, 125 s of a debug build and 6 MB of each program.
        // libcrypto is on every Linux, and its distribution mends it.
        .systemLibrary(
            name: "COpenSSL",
            path: "Sources/Basics/COpenSSL",
            pkgConfig: "libcrypto",
            providers: [.apt(["libssl-dev"])]
        ),
        .target(name: "Cryptography", dependencies: ["Basics", "COpenSSL"], path: "Sources/Basics/Cryptography"),
        .testTarget(
            name: "BasicsTests",
            dependencies: ["Basics", "COpenSSL", "Cryptography", "DBus", "NotifyCenterTestKit"],
            path: "Tests/Basics",
            exclude: ["CryptographyTests/vectors.txt"]
        ),

        // MARK: Bus: libdbus, and nothing of notifications
        .systemLibrary(
            name: "CDBus",
            path: "Sources/Bus/CDBus",
            pkgConfig: "dbus-1",
            providers: [.apt(["libdbus-1-dev"])]
        ),
        .target(name: "DBus", dependencies: ["Basics", "CDBus", "CLinux"], path: "Sources/Bus/DBus"),
        // A process that observes, posts and ends, or forks. Its arguments say which.
        .executableTarget(
            name: "bus-probe",
            dependencies: ["Basics", "CLinux", "DBus"],
            path: "Tests/Bus/DBus/BusProbe"
        ),
        .testTarget(
            name: "BusTests",
            dependencies: ["Basics", "CDBus", "CLinux", "DBus", "NotifyCenterTestKit", "bus-probe"],
            path: "Tests/Bus",
            exclude: ["DBus/BusProbe"]
        ),

        // MARK: Notifications: the centers, and Apple's spellings of them
        // The messages between the library of notify(3) and its service, which posts reserved names for the Darwin center too.
        .target(
            name: "NotifydProtocol",
            dependencies: ["Basics", "DBus"],
            path: "Sources/Notifications/NotifydProtocol"
        ),
        .target(
            name: "NotifyCenter",
            dependencies: ["Basics", "DBus", "NotifydProtocol"],
            path: "Sources/Notifications/NotifyCenter"
        ),
        .target(
            name: "NotifyCenterFoundation",
            dependencies: ["Basics", "DBus", "NotifyCenter"],
            path: "Sources/Notifications/NotifyCenterFoundation"
        ),
        .target(
            name: "AppleNotifications",
            dependencies: ["Basics", "DBus", "NotifyCenter", "NotifyCenterFoundation"],
            path: "Sources/Notifications/AppleNotifications"
        ),
        // What CoreFoundation's headers hide on Linux.
        .target(name: "CCoreFoundationNotifications", path: "Sources/Notifications/CCoreFoundationNotifications"),
        .target(
            name: "CoreFoundationNotifications",
            dependencies: ["CCoreFoundationNotifications", "NotifyCenter", "NotifyCenterFoundation"],
            path: "Sources/Notifications/CoreFoundationNotifications"
        ),
        // Processes with a center, which carry out the commands of their standard input.
        .executableTarget(
            name: "center-probe",
            dependencies: ["NotifyCenter"],
            path: "Tests/Notifications/NotifyCenterTests/CenterProbe"
        ),
        .executableTarget(
            name: "foundation-probe",
            dependencies: ["NotifyCenterFoundation"],
            path: "Tests/Notifications/NotifyCenterFoundationTests/FoundationProbe"
        ),
        // Code as people write it for Apple's platforms, in the language mode that most of them use.
        .executableTarget(
            name: "ported-app",
            dependencies: ["AppleNotifications", "notify"],
            path: "Tests/Notifications/AppleNotificationsTests/PortedApp",
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        // It imports nothing of this package but the replacement of CoreFoundation's functions.
        .executableTarget(
            name: "unmodified-app",
            dependencies: ["CoreFoundationNotifications"],
            path: "Tests/Notifications/CoreFoundationNotificationsTests/UnmodifiedApp"
        ),
        .executableTarget(
            name: "scripted-app",
            dependencies: ["CoreFoundationNotifications"],
            path: "Tests/Notifications/CoreFoundationNotificationsTests/ScriptedApp"
        ),
        .testTarget(
            name: "NotificationsTests",
            dependencies: [
                "AppleNotifications", "Basics", "CDBus", "CoreFoundationNotifications", "DBus", "NotifyCenter",
                "NotifyCenterFoundation", "NotifyCenterTestKit", "NotifydProtocol", "center-probe", "foundation-probe",
                "ported-app", "unmodified-app", "scripted-app", "notifyutil",
            ],
            path: "Tests/Notifications",
            exclude: [
                "AppleNotificationsTests/PortedApp", "CoreFoundationNotificationsTests/Programs",
                "CoreFoundationNotificationsTests/ScriptedApp", "CoreFoundationNotificationsTests/UnmodifiedApp",
                "NotifyCenterFoundationTests/FoundationProbe", "NotifyCenterTests/CenterProbe",
            ]
        ),

        // MARK: Notify3: notify(3), its service and its commands
        // The headers.
        .target(name: "CNotify", path: "Sources/Notify3/CNotify"),
        // Queues and blocks of C callers.
        .target(name: "CDispatchQueues", path: "Sources/Notify3/CDispatchQueues"),
        .target(
            name: "notify",
            dependencies: [
                "Basics", "CDispatchQueues", "CLinux", "CNotify", "DBus", "NotifyCenter", "NotifydProtocol",
            ],
            path: "Sources/Notify3/notify"
        ),
        .target(
            name: "NotifyDaemon",
            dependencies: ["Basics", "DBus", "NotifyCenter", "NotifydProtocol"],
            path: "Sources/Notify3/NotifyDaemon"
        ),
        .executableTarget(
            name: "notifyd",
            dependencies: ["Basics", "DBus", "NotifyDaemon", "NotifydProtocol"],
            path: "Sources/Notify3/notifyd"
        ),
        // What notifyutil and notify-center have in common.
        .target(
            name: "CommandSupport",
            dependencies: ["Basics", "DBus", "notify", "NotifyCenter", "NotifydProtocol"],
            path: "Sources/Notify3/CommandSupport"
        ),
        .executableTarget(
            name: "notifyutil",
            dependencies: ["Basics", "CLinux", "CommandSupport", "DBus", "notify", "NotifyCenter", "NotifydProtocol"],
            path: "Sources/Notify3/notifyutil"
        ),
        .executableTarget(
            name: "notify-center",
            dependencies: [
                "Basics", "CommandSupport", "DBus", "notify", "NotifyCenter", "NotifydProtocol", argumentParser,
            ],
            path: "Sources/Notify3/notify-center"
        ),
        // A process that calls notify(3) as its standard input says.
        .executableTarget(
            name: "notify-probe",
            dependencies: ["CNotify", "notify", "NotifyCenter"],
            path: "Tests/Notify3/NotifyTests/NotifyProbe"
        ),
        .executableTarget(
            name: "ported-notify",
            dependencies: ["notify"],
            path: "Tests/Notify3/NotifyTests/PortedNotify",
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        // Another process with registrations, also under another user.
        .executableTarget(
            name: "notifyd-client",
            dependencies: ["Basics", "DBus", "NotifydProtocol"],
            path: "Tests/Notify3/NotifyDaemonTests/NotifydClient"
        ),
        // Processes of other users, honest and hostile.
        .executableTarget(
            name: "hostile-notifier",
            dependencies: ["DBus", "notify"],
            path: "Tests/Notify3/NotifydHostileTests/HostileNotifier"
        ),
        .testTarget(
            name: "Notify3Tests",
            dependencies: [
                "Basics", "CDBus", "CNotify", "CommandSupport", "DBus", "notify", "NotifyCenter", "NotifyCenterTestKit",
                "NotifyDaemon", "NotifydProtocol", "notify-probe", "ported-notify", "notifyd-client", "notifyd",
                "notifyutil", "notify-center",
            ],
            path: "Tests/Notify3",
            exclude: [
                "CProgramTests/Programs", "NotifyDaemonTests/NotifydClient", "NotifyTests/NotifyProbe",
                "NotifyTests/PortedNotify", "NotifydHostileTests", "NotifydHostileTests/HostileNotifier",
                "install-check",
            ]
        ),
        .testTarget(
            name: "NotifydHostileTests",
            dependencies: ["Basics", "DBus", "NotifyCenterTestKit", "NotifydProtocol", "hostile-notifier", "notifyd"],
            path: "Tests/Notify3/NotifydHostileTests",
            exclude: ["HostileNotifier"]
        ),

        // MARK: SharedDevice: what an app on a shared device links
        .target(
            name: "SharedDevice",
            dependencies: ["Basics", "CLinux", "DBus", "NotifyCenter"],
            path: "Sources/SharedDevice/SharedDevice"
        ),
        // MSAL's names, for code that was written for shared device mode on iOS.
        .target(
            name: "MSAL",
            dependencies: ["Basics", "DBus", "NotifyCenter", "SharedDevice"],
            path: "Sources/SharedDevice/MSAL"
        ),
        // An app that cleans up, and is killed at the point that its arguments name.
        .executableTarget(
            name: "cleanup-probe",
            dependencies: ["NotifyCenter", "SharedDevice"],
            path: "Tests/SharedDevice/SharedDeviceTests/CleanupProbe"
        ),
        // An app that follows the account, and does what its standard input says.
        .executableTarget(
            name: "listener-app",
            dependencies: ["Basics", "DBus", "NotifyCenter", "SharedDevice", argumentParser],
            path: "Tests/SharedDevice/SharedDeviceTests/ListenerProgram"
        ),
        .executableTarget(
            name: "ported-shared-device-app",
            dependencies: ["AppleNotifications", "MSAL"],
            path: "Tests/SharedDevice/MSALTests/PortedSharedDeviceApp",
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        .testTarget(
            name: "SharedDeviceTests",
            dependencies: [
                "Basics", "Cryptography", "DBus", "DeviceConfiguration", "DeviceStorage", "EmbeddedIdentity",
                "ExampleSupport", "Identity", "MSAL", "NotifyCenter", "NotifyCenterTestKit", "ServiceSupport",
                "SharedDevice", "SharedDeviceBroker", "SharedDeviceTestKit", "SQLite", logging, "cleanup-probe",
                "listener-app", "ported-shared-device-app", "demo", "notify-center", "notifyutil", "shared-device",
                "shared-device-broker", "point-of-sale", "flight-briefing", "field-service",
            ],
            path: "Tests/SharedDevice",
            exclude: [
                "MSALTests/Fixtures", "MSALTests/PortedSharedDeviceApp", "SharedDeviceTests/CleanupProbe",
                "SharedDeviceTests/ListenerProgram", "SharedDeviceTests/session-record.json",
            ]
        ),

        // MARK: Broker: the service that holds the account of a device, its users, and its administration
        // The project's own four files on SQLite's C functions, because GRDB 7.10 imports Foundation, which brings ICU along: with it the broker
        // had 64 MB on the disk and 25.5 MB in memory (100 apps), without it 17 MB and 18.7 MB.
        .systemLibrary(
            name: "CSQLite",
            path: "Sources/Broker/CSQLite",
            pkgConfig: "sqlite3",
            providers: [.apt(["libsqlite3-dev"])]
        ),
        .target(name: "SQLite", dependencies: ["CSQLite"], path: "Sources/Broker/SQLite"),
        // scrypt, from libxcrypt: every Linux has it, and its "$7$" strings are a form that other tools can check.
        .systemLibrary(
            name: "CCrypt",
            path: "Sources/Broker/CCrypt",
            pkgConfig: "libcrypt",
            providers: [.apt(["libcrypt-dev"])]
        ),
        // The interface of identity providers, here and over the bus.
        .target(
            name: "Identity",
            dependencies: ["Basics", "Cryptography", "DBus", "SharedDevice"],
            path: "Sources/Broker/Identity"
        ),
        // The device's SQLite file, and the threads that wait for disk and hashes.
        .target(
            name: "DeviceStorage",
            dependencies: ["Basics", "DBus", "SQLite"],
            path: "Sources/Broker/DeviceStorage"
        ),
        // The users of a device that has no organisation behind it, and their tokens.
        .target(
            name: "EmbeddedIdentity",
            dependencies: [
                "Basics", "CCrypt", "Cryptography", "DBus", "DeviceStorage", "Identity", "SharedDevice", "SQLite",
            ],
            path: "Sources/Broker/EmbeddedIdentity"
        ),
        // What administrators write: the managed configuration and the apps' manifests.
        .target(
            name: "DeviceConfiguration",
            dependencies: ["Basics", "DBus", "Identity"],
            path: "Sources/Broker/DeviceConfiguration"
        ),
        .target(
            name: "SharedDeviceBroker",
            dependencies: [
                "Basics", "CLinux", "Cryptography", "DBus", "DeviceConfiguration", "DeviceStorage", "Identity",
                "NotifyCenter", "SharedDevice", "SQLite", logging,
            ],
            path: "Sources/Broker/SharedDeviceBroker",
            resources: [.embedInCode("Service/org.notifycenter.SharedDevice1.xml")]
        ),
        // What programs that run as services do alike: log, signs of life.
        .target(
            name: "ServiceSupport",
            dependencies: [
                "Basics", "CLinux", "DBus", "DeviceConfiguration", "DeviceStorage", argumentParser, logging,
            ],
            path: "Sources/Broker/ServiceSupport"
        ),
        .executableTarget(
            name: "shared-device-broker",
            dependencies: [
                "Basics", "DBus", "DeviceConfiguration", "DeviceStorage", "EmbeddedIdentity", "Identity",
                "NotifyCenter", "ServiceSupport", "SharedDeviceBroker", argumentParser, logging,
            ],
            path: "Sources/Broker/shared-device-broker"
        ),
        // What commands print and read: a device as its observers see it, tables, metrics, secrets at a terminal.
        .target(
            name: "CommandParts",
            dependencies: ["Basics", "DBus", "DeviceConfiguration", "Identity", "SharedDevice", argumentParser],
            path: "Sources/Broker/CommandParts"
        ),
        .executableTarget(
            name: "shared-device",
            dependencies: [
                "AppAdapters", "Basics", "CLinux", "CommandParts", "DBus", "DeviceConfiguration", "DeviceStorage",
                "EmbeddedIdentity", "Identity", "NotifyCenter", "NotifyCenterTestKit", "SharedDevice",
                "SharedDeviceBroker", "SharedDeviceTestKit", argumentParser,
            ],
            path: "Sources/Broker/shared-device"
        ),
        // Commits in a loop until it is killed.
        .executableTarget(
            name: "commit-loop",
            dependencies: [
                "DBus", "DeviceConfiguration", "DeviceStorage", "Identity", "SharedDevice", "SharedDeviceBroker",
            ],
            path: "Tests/Broker/SharedDeviceBrokerTests/CommitLoop"
        ),
        // A client that means harm; tests run it as another user.
        .executableTarget(
            name: "hostile-client",
            dependencies: ["Basics", "DBus", "SharedDevice"],
            path: "Tests/Broker/SharedDeviceHostileTests/HostileClient"
        ),
        // A listener app. Its standard input says what it does, and its environment which mistakes it makes.
        .executableTarget(
            name: "torture-app",
            dependencies: ["Basics", "DBus", "NotifyCenter", "SharedDevice"],
            path: "Tests/Broker/SharedDeviceTortureTests/TortureApp"
        ),
        // Broker, apps, bus and disk in one process, on a clock that is a number.
        .target(
            name: "SharedDeviceSimulation",
            dependencies: ["DBus", "DeviceConfiguration", "Identity", "SharedDevice", "SharedDeviceBroker"],
            path: "Tests/Broker/SharedDeviceSimulationTests/Simulation"
        ),
        .executableTarget(
            name: "simulate",
            dependencies: ["SharedDeviceSimulation"],
            path: "Tests/Broker/SharedDeviceSimulationTests/Simulate"
        ),
        .testTarget(
            name: "BrokerTests",
            dependencies: [
                "Basics", "CommandParts", "Cryptography", "DBus", "DeviceConfiguration", "DeviceStorage",
                "EmbeddedIdentity", "Identity", "NotifyCenterTestKit", "SharedDevice", "SharedDeviceBroker",
                "SharedDeviceSimulation", "SQLite", logging, "commit-loop", "shared-device", "shared-device-broker",
            ],
            path: "Tests/Broker",
            exclude: [
                "ProfileConversionTests/Fixtures", "ProtocolModel", "SharedDeviceBrokerTests/CommitLoop",
                "SharedDeviceHostileTests", "SharedDeviceSimulationTests", "SharedDeviceTortureTests", "booted-check",
                "booted-device", "booted-login-check", "install-broker-check",
            ]
        ),
        .testTarget(
            name: "SharedDeviceHostileTests",
            dependencies: [
                "Basics", "DBus", "DeviceConfiguration", "DeviceStorage", "Identity", "NotifyCenterTestKit",
                "SharedDevice", "SharedDeviceBroker", "hostile-client", "shared-device", "shared-device-broker",
            ],
            path: "Tests/Broker/SharedDeviceHostileTests",
            exclude: ["HostileClient", "Programs"]
        ),
        .testTarget(
            name: "SharedDeviceTortureTests",
            dependencies: [
                "Basics", "DBus", "DeviceStorage", "EmbeddedIdentity", "Identity", "NotifyCenter",
                "NotifyCenterTestKit", "SharedDevice", "SharedDeviceBroker", "SharedDeviceSimulation", "SQLite",
                "torture-app", "hostile-client", "shared-device-cleanup", "shared-device", "shared-device-broker",
            ],
            path: "Tests/Broker/SharedDeviceTortureTests",
            exclude: ["TortureApp"]
        ),
        .testTarget(
            name: "SharedDeviceSimulationTests",
            dependencies: ["SharedDeviceSimulation", "simulate"],
            path: "Tests/Broker/SharedDeviceSimulationTests",
            exclude: ["README.md", "Simulate", "Simulation", "mutants"]
        ),

        // MARK: Adapters: what takes part in the place of programs that know nothing of shared device mode
        .target(
            name: "AppAdapters",
            dependencies: ["Basics", "CLinux", "DBus", "DeviceConfiguration", "SharedDevice"],
            path: "Sources/Adapters/AppAdapters"
        ),
        .executableTarget(
            name: "shared-device-cleanup",
            dependencies: [
                "AppAdapters", "Basics", "CLinux", "DBus", "DeviceConfiguration", "SharedDevice", argumentParser,
            ],
            path: "Sources/Adapters/shared-device-cleanup"
        ),
        .executableTarget(
            name: "adapter-probe",
            dependencies: ["AppAdapters", "Basics", "DBus", "DeviceConfiguration", "SharedDevice"],
            path: "Tests/Adapters/AppAdaptersTests/AdapterProbe"
        ),
        .testTarget(
            name: "AdaptersTests",
            dependencies: [
                "AppAdapters", "Basics", "CLinux", "DBus", "DeviceConfiguration", "NotifyCenterTestKit", "SharedDevice",
                "SharedDeviceTestKit", "adapter-probe", "shared-device-cleanup", "shared-device",
                "shared-device-broker",
            ],
            path: "Tests/Adapters",
            exclude: [
                "AppAdaptersTests/AdapterProbe", "AppAdaptersTests/Programs", "booted-check", "chromium-figure",
                "flatpak-check",
            ]
        ),

        // MARK: TestKits: what users of the package test with, and this project itself
        .target(
            name: "NotifyCenterTestKit",
            dependencies: ["Basics", "CLinux", "DBus", "NotifyCenter"],
            path: "Sources/TestKits/NotifyCenterTestKit"
        ),
        .target(
            name: "SharedDeviceTestKit",
            dependencies: [
                "Basics", "DBus", "DeviceConfiguration", "NotifyCenter", "NotifyCenterTestKit", "SharedDevice",
            ],
            path: "Sources/TestKits/SharedDeviceTestKit",
            resources: console
        ),

        // MARK: Examples: listener apps, each a process of its own, and the demonstration that runs them
        .target(
            name: "ExampleSupport",
            dependencies: ["NotifyCenter", "SharedDevice", argumentParser],
            path: "Examples/Support"
        ),
        .executableTarget(
            name: "point-of-sale",
            dependencies: ["ExampleSupport", "SharedDevice", "SQLite", argumentParser],
            path: "Examples/PointOfSale"
        ),
        .executableTarget(
            name: "flight-briefing",
            dependencies: ["ExampleSupport", "SharedDevice", argumentParser],
            path: "Examples/FlightBriefing"
        ),
        .executableTarget(
            name: "field-service",
            dependencies: ["ExampleSupport", "SharedDevice", argumentParser],
            path: "Examples/FieldService"
        ),
        // Apps and receipts of the demonstrations, which find the programs at the end of their lists built beside themselves.
        .target(
            name: "DemoStage",
            dependencies: [
                "DeviceConfiguration", "ExampleSupport", "NotifyCenterTestKit", "SharedDevice", "SharedDeviceTestKit",
            ],
            path: "Examples/Stage"
        ),
        .executableTarget(
            name: "demo",
            dependencies: [
                "Basics", "DemoStage", "DeviceConfiguration", "ExampleSupport", "NotifyCenter", "NotifyCenterTestKit",
                "SharedDevice", "SharedDeviceTestKit", argumentParser, "shared-device", "shared-device-broker",
                "point-of-sale", "flight-briefing", "field-service",
            ],
            path: "Examples/Demo"
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
}
