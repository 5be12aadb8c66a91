// swift-tools-version:6.2

import PackageDescription

/// The console's drawing files, which the test kit has in it for the pages of checks.
let console: [Resource] = [
    "texts.js", "texts.en.json", "dom.js", "words.js", "day.js", "rounds.js", "drawing.js", "report.js",
    "shared-device.css",
].map { .embedInCode("Console/\($0)") }

/// The interface for apps and their tests. NotifyCenter and notify need libdbus-1 and the standard library; those for Apple
/// source link Foundation.
let libraries = [
    "NotifyCenter", "NotifyCenterTestKit", "notify", "NotifyCenterFoundation", "AppleNotifications",
    "CoreFoundationNotifications", "SharedDevice", "SharedDeviceTestKit",
]

/// Modules that the packages in `Extensions` use. They may change at any time.
let partsOfExtensions = [
    "AppAdapters", "Basics", "CommandParts", "Cryptography", "DBus", "DBusService", "DemoStage",
    "DeviceConfiguration", "DeviceStorage", "EmbeddedIdentity", "ExampleSupport", "Identity", "ServiceSupport",
]

/// The programs that are installed, and the apps of the demonstrations.
let programs = [
    "notifyd", "notifyutil", "notify-center", "shared-device", "shared-device-broker", "shared-device-cleanup",
    "point-of-sale", "flight-briefing", "field-service",
]

let isWanted: TargetDependencyCondition? = .when(traits: ["Programs"])
let argumentParser = Target.Dependency.product(
    name: "ArgumentParser",
    package: "swift-argument-parser",
    condition: isWanted
)
let logging = Target.Dependency.product(name: "Logging", package: "swift-log", condition: isWanted)

/// A library of the system, and the Debian package that has its headers.
func systemLibrary(_ name: String, path: String, pkgConfig: String, apt: String) -> Target {
    .systemLibrary(name: name, path: path, pkgConfig: pkgConfig, providers: [.apt([apt])])
}

// The folders are in the order of their use: a library uses the folders above it, a program or a test uses any folder.
// A target names only dependencies that its other dependencies do not bring along.
let package = Package(
    name: "notify-center",
    products: (libraries + partsOfExtensions).map { .library(name: $0, targets: [$0]) }
        + programs.map { .executable(name: $0, targets: [$0]) } + [
            // MSAL's names, for code that was written for shared device mode on iOS: `import MSAL`.
            .library(name: "MSALCompatibility", targets: ["MSAL"]),
            // For C, C++ …: -ldarwin-notify. The name `libnotify` is that of GNOME's.
            .library(name: "darwin-notify", type: .dynamic, targets: ["notify"]),
            // CoreFoundation's functions. SwiftPM cannot link it with `--static-swift-stdlib`; name another product there.
            .library(name: "CFNotificationCenter", type: .dynamic, targets: ["CoreFoundationNotifications"]),
        ],
    traits: [
        .trait(
            name: "Programs",
            description: "Commands and services. The libraries need no other package: `traits: []`."
        ),
        .default(enabledTraits: ["Programs"]),
    ],
    dependencies: [
        // Command lines, except notifyutil's, whose grammar is Darwin's.
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        // The broker's log, in the form that Swift services share.
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    ],
    targets: [
        // MARK: Basics: code that every part uses, without D-Bus and Foundation
        // Calls of Linux that Swift's Glibc module lacks.
        .target(name: "CLinux", path: "Sources/Basics/CLinux"),
        // Locks, threads, starting programs, watching files, JSON from strangers, the version.
        .target(name: "Basics", dependencies: ["CLinux"], path: "Sources/Basics/Basics"),
        // OpenSSL 3, not swift-crypto: that is BoringSSL compiled anew, 125 s of a debug build and 6 MB of each program.
        // libcrypto is on every Linux, and its distribution mends it. A C target, because a constructor sets an option.
        .target(name: "COpenSSL", path: "Sources/Basics/COpenSSL", linkerSettings: [.linkedLibrary("crypto")]),
        .target(name: "Cryptography", dependencies: ["Basics", "COpenSSL"], path: "Sources/Basics/Cryptography"),
        .testTarget(
            name: "BasicsTests",
            dependencies: ["Cryptography", "NotifyCenterTestKit"],
            path: "Tests/Basics",
            exclude: ["CryptographyTests/vectors.txt"]
        ),

        // MARK: Bus: libdbus, and nothing of notifications
        systemLibrary("CDBus", path: "Sources/Bus/CDBus", pkgConfig: "dbus-1", apt: "libdbus-1-dev"),
        .target(name: "DBus", dependencies: ["Basics", "CDBus"], path: "Sources/Bus/DBus"),
        // What a service needs besides: objects, and the limits of their callers.
        .target(name: "DBusService", dependencies: ["DBus"], path: "Sources/Bus/DBusService"),
        // A process that observes, posts and ends, or forks. Its arguments say which.
        .executableTarget(name: "bus-probe", dependencies: ["DBusService"], path: "Tests/Programs/bus-probe"),
        .testTarget(name: "BusTests", dependencies: ["NotifyCenterTestKit", "bus-probe"], path: "Tests/Bus"),

        // MARK: Notifications: the centers, and Apple's spellings of them
        .target(name: "NotifyCenter", dependencies: ["DBus"], path: "Sources/Notifications/NotifyCenter"),
        .target(
            name: "NotifyCenterFoundation",
            dependencies: ["NotifyCenter"],
            path: "Sources/Notifications/NotifyCenterFoundation"
        ),
        .target(
            name: "AppleNotifications",
            dependencies: ["NotifyCenterFoundation"],
            path: "Sources/Notifications/AppleNotifications"
        ),
        // Declarations that CoreFoundation's headers hide on Linux.
        .target(name: "CCoreFoundationNotifications", path: "Sources/Notifications/CCoreFoundationNotifications"),
        .target(
            name: "CoreFoundationNotifications",
            dependencies: ["CCoreFoundationNotifications", "NotifyCenterFoundation"],
            path: "Sources/Notifications/CoreFoundationNotifications"
        ),
        // A process with a center. Its arguments or its standard input have its commands.
        .executableTarget(
            name: "notification-probe",
            dependencies: ["NotifyCenterFoundation"],
            path: "Tests/Programs/notification-probe"
        ),
        // Code as people write it for Apple's platforms, in the language mode that most of them use.
        .executableTarget(
            name: "ported-app",
            dependencies: ["AppleNotifications", "notify"],
            path: "Tests/Programs/ported-app",
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        // It imports nothing of this package but the replacement of CoreFoundation's functions.
        .executableTarget(
            name: "unmodified-app",
            dependencies: ["CoreFoundationNotifications"],
            path: "Tests/Programs/unmodified-app"
        ),
        .executableTarget(
            name: "scripted-app",
            dependencies: ["CoreFoundationNotifications"],
            path: "Tests/Programs/scripted-app"
        ),
        .testTarget(
            name: "NotificationsTests",
            dependencies: [
                "AppleNotifications", "CoreFoundationNotifications", "NotifyCenterTestKit", "notification-probe",
                "ported-app", "unmodified-app", "scripted-app", "notifyutil",
            ],
            path: "Tests/Notifications",
            exclude: ["CoreFoundationNotificationsTests/Programs"]
        ),

        // MARK: Notify3: notify(3), its service and its commands
        // The headers; queues and blocks of C callers.
        .target(name: "CNotify", path: "Sources/Notify3/CNotify"),
        .target(name: "notify", dependencies: ["CNotify", "NotifyCenter"], path: "Sources/Notify3/notify"),
        .executableTarget(
            name: "notifyd",
            dependencies: ["DBusService", "NotifyCenter"],
            path: "Sources/Notify3/notifyd"
        ),
        // The common code of notifyutil and notify-center.
        .target(name: "CommandSupport", dependencies: ["notify"], path: "Sources/Notify3/CommandSupport"),
        .executableTarget(name: "notifyutil", dependencies: ["CommandSupport"], path: "Sources/Notify3/notifyutil"),
        .executableTarget(
            name: "notify-center",
            dependencies: ["CommandSupport", argumentParser],
            path: "Sources/Notify3/notify-center"
        ),
        // A process that calls notify(3) or notifyd, as its standard input says.
        .executableTarget(name: "notify-probe", dependencies: ["notify"], path: "Tests/Programs/notify-probe"),
        .executableTarget(
            name: "ported-notify",
            dependencies: ["notify"],
            path: "Tests/Programs/ported-notify",
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        .testTarget(
            name: "Notify3Tests",
            dependencies: [
                "NotifyCenterTestKit", "notify-probe", "ported-notify", "hostile-client", "notifyd", "notifyutil",
                "notify-center",
            ],
            path: "Tests/Notify3",
            exclude: ["CProgramTests/Programs", "install-check"]
        ),

        // MARK: SharedDevice: the libraries for apps on a shared device
        .target(name: "SharedDevice", dependencies: ["NotifyCenter"], path: "Sources/SharedDevice/SharedDevice"),
        // MSAL's names, for code that was written for shared device mode on iOS.
        .target(name: "MSAL", dependencies: ["SharedDevice"], path: "Sources/SharedDevice/MSAL"),
        // An app that follows the account or cleans up, as its arguments and its standard input say.
        .executableTarget(
            name: "listener-app",
            dependencies: ["SharedDevice", argumentParser],
            path: "Tests/Programs/listener-app"
        ),
        .executableTarget(
            name: "ported-shared-device-app",
            dependencies: ["AppleNotifications", "MSAL"],
            path: "Tests/Programs/ported-shared-device-app",
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        .testTarget(
            name: "SharedDeviceTests",
            dependencies: [
                "EmbeddedIdentity", "MSAL", "ServiceSupport", "SharedDeviceBroker",
                "SharedDeviceTestKit", "listener-app", "ported-shared-device-app", "demo", "notify-center",
                "notifyutil", "shared-device", "shared-device-broker", "point-of-sale", "flight-briefing",
                "field-service",
            ],
            path: "Tests/SharedDevice",
            exclude: ["MSALTests/Fixtures", "SharedDeviceTests/session-record.json"]
        ),

        // MARK: Broker: the service that holds the account of a device, its users, and its administration
        // The project's own four files on SQLite's C functions. GRDB 7.10 imports Foundation, and with it ICU: the broker
        // had 64 MB on the disk and 25.5 MB in memory (100 apps), and has 17 MB and 18.7 MB without it.
        systemLibrary("CSQLite", path: "Sources/Broker/CSQLite", pkgConfig: "sqlite3", apt: "libsqlite3-dev"),
        // scrypt, from libxcrypt: every Linux has it, and its "$7$" strings are a form that other tools can check.
        systemLibrary("CCrypt", path: "Sources/Broker/CCrypt", pkgConfig: "libcrypt", apt: "libcrypt-dev"),
        // The interface of identity providers, here and over the bus.
        .target(
            name: "Identity",
            dependencies: ["Cryptography", "DBusService", "SharedDevice"],
            path: "Sources/Broker/Identity"
        ),
        // The device's SQLite file, and the threads that wait for disk and hashes.
        .target(name: "DeviceStorage", dependencies: ["Basics", "CSQLite"], path: "Sources/Broker/DeviceStorage"),
        // The users of a device that has no organisation behind it, and their tokens.
        .target(
            name: "EmbeddedIdentity",
            dependencies: ["CCrypt", "DeviceStorage", "Identity"],
            path: "Sources/Broker/EmbeddedIdentity"
        ),
        // The files of administrators: the managed configuration and the apps' manifests.
        .target(name: "DeviceConfiguration", dependencies: ["Identity"], path: "Sources/Broker/DeviceConfiguration"),
        // The decisions of the broker, without bus, disk, threads and clock.
        .target(
            name: "BrokerCore",
            dependencies: ["DeviceConfiguration", logging],
            path: "Sources/Broker/BrokerCore"
        ),
        .target(
            name: "SharedDeviceBroker",
            dependencies: ["BrokerCore", "DeviceStorage"],
            path: "Sources/Broker/SharedDeviceBroker",
            resources: [.embedInCode("Service/org.notifycenter.SharedDevice1.xml")]
        ),
        // The common code of services: their log and their signs of life.
        .target(
            name: "ServiceSupport",
            dependencies: ["DeviceConfiguration", "DeviceStorage", argumentParser, logging],
            path: "Sources/Broker/ServiceSupport"
        ),
        .executableTarget(
            name: "shared-device-broker",
            dependencies: ["EmbeddedIdentity", "ServiceSupport", "SharedDeviceBroker"],
            path: "Sources/Broker/shared-device-broker"
        ),
        // Input and output of commands: the view of a device, tables, metrics, secrets at a terminal, translated texts.
        .target(
            name: "CommandParts",
            dependencies: ["DeviceConfiguration", argumentParser],
            path: "Sources/Broker/CommandParts",
            resources: ["de", "en", "es", "tr", "zh-TW"].map { .embedInCode("Texts/\($0).json") }
        ),
        .executableTarget(
            name: "shared-device",
            dependencies: [
                "AppAdapters", "CommandParts", "EmbeddedIdentity", "SharedDeviceBroker", "SharedDeviceTestKit",
            ],
            path: "Sources/Broker/shared-device"
        ),
        // A client of the broker or of notifyd that means harm; tests run it as another user.
        .executableTarget(
            name: "hostile-client",
            dependencies: ["notify", "SharedDevice"],
            path: "Tests/Programs/hostile-client"
        ),
        // A listener app. Its standard input has its commands, and its environment its deliberate mistakes.
        .executableTarget(name: "torture-app", dependencies: ["SharedDevice"], path: "Tests/Programs/torture-app"),
        // Broker, apps, bus and disk in one process, on a simulated clock; also a store that commits until it is killed.
        .executableTarget(name: "simulate", dependencies: ["SharedDeviceBroker"], path: "Tests/Programs/simulate"),
        .testTarget(
            name: "BrokerTests",
            dependencies: [
                "CommandParts", "EmbeddedIdentity", "NotifyCenterTestKit", "hostile-client", "torture-app", "simulate",
                "shared-device-cleanup", "shared-device", "shared-device-broker",
            ],
            path: "Tests/Broker",
            exclude: [
                "ProfileConversionTests/Fixtures", "ProtocolModel", "README.md", "SharedDeviceHostileTests/Programs",
                "SharedDeviceSimulationTests/README.md", "SharedDeviceSimulationTests/mutants", "booted-check",
                "booted-device", "booted-login-check", "features-check", "install-broker-check",
            ]
        ),

        // MARK: Adapters: they take part for programs that know nothing of shared device mode
        .target(name: "AppAdapters", dependencies: ["DeviceConfiguration"], path: "Sources/Adapters/AppAdapters"),
        .executableTarget(
            name: "shared-device-cleanup",
            dependencies: ["AppAdapters", argumentParser],
            path: "Sources/Adapters/shared-device-cleanup"
        ),
        .executableTarget(name: "adapter-probe", dependencies: ["AppAdapters"], path: "Tests/Programs/adapter-probe"),
        .testTarget(
            name: "AdaptersTests",
            dependencies: [
                "AppAdapters", "SharedDeviceTestKit", "adapter-probe", "shared-device-cleanup", "shared-device",
                "shared-device-broker",
            ],
            path: "Tests/Adapters",
            exclude: ["AppAdaptersTests/Programs", "booted-check", "chromium-figure", "flatpak-check"]
        ),

        // MARK: TestKits: for the tests of users and of this project
        .target(
            name: "NotifyCenterTestKit",
            dependencies: ["NotifyCenter"],
            path: "Sources/TestKits/NotifyCenterTestKit"
        ),
        .target(
            name: "SharedDeviceTestKit",
            dependencies: ["NotifyCenterTestKit", "SharedDevice"],
            path: "Sources/TestKits/SharedDeviceTestKit",
            resources: console
        ),

        // MARK: Examples: listener apps, each a process of its own, and the demonstration that runs them
        .target(name: "ExampleSupport", dependencies: ["SharedDevice", argumentParser], path: "Examples/Support"),
        .executableTarget(
            name: "point-of-sale",
            dependencies: ["DeviceStorage", "ExampleSupport"],
            path: "Examples/PointOfSale"
        ),
        .executableTarget(name: "flight-briefing", dependencies: ["ExampleSupport"], path: "Examples/FlightBriefing"),
        .executableTarget(name: "field-service", dependencies: ["ExampleSupport"], path: "Examples/FieldService"),
        // Apps and receipts of the demonstrations. A demonstration lists the programs that have to be built beside it.
        .target(
            name: "DemoStage",
            dependencies: ["DeviceConfiguration", "ExampleSupport", "SharedDeviceTestKit"],
            path: "Examples/Stage"
        ),
        .executableTarget(
            name: "demo",
            dependencies: [
                "DemoStage", "shared-device", "shared-device-broker", "point-of-sale", "flight-briefing",
                "field-service",
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
