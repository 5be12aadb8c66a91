// swift-tools-version:6.2

import PackageDescription

// MARK: Families

// A family of targets is a folder: its libraries and programs in Sources, its tests in Tests. A family uses those above it here, never
// one below.

/// Puts each target into the family's folder. A test target gets its helpers as dependencies, and leaves their folders out of its sources.
func family(_ name: String, _ targets: [Target]) -> [Target] {
    for target in targets {
        let path = target.path ?? target.name
        target.path = "\(target.type == .test || target.path != nil ? "Tests" : "Sources")/\(name)/\(path)"
        for test in targets where path.hasPrefix(test.name + "/") {
            test.dependencies.append(.target(name: target.name))
            test.exclude.append(String(path.dropFirst(test.name.count + 1)))
        }
    }
    return targets
}

/// A module that others import. `path` is for one in the folder of a test target.
func library(
    _ name: String,
    _ dependencies: [Target.Dependency],
    path: String? = nil,
    resources: [Resource]? = nil
)
    -> Target
{
    .target(name: name, dependencies: dependencies, path: path, resources: resources)
}

/// A program. `path` is for one that tests start: it names the test target that it serves, and its folder there.
func program(
    _ name: String,
    _ dependencies: [Target.Dependency],
    path: String? = nil,
    settings: [SwiftSetting] = []
) -> Target {
    .executableTarget(name: name, dependencies: dependencies, path: path, swiftSettings: settings)
}

/// A test target. All of them may use the test kit.
func tests(_ name: String, _ dependencies: [Target.Dependency], exclude: [String] = []) -> Target {
    .testTarget(name: name, dependencies: dependencies + ["NotifyCenterTestKit"], exclude: exclude)
}

let argumentParser = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")
/// What a program that posts and observes needs.
let center: [Target.Dependency] = ["NotifyCenter", "DBusTransport"]
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")

/// What a whole broker is made of, for its programs and tests.
let brokerParts: [Target.Dependency] = [
    "SharedDeviceBroker", "DeviceConfiguration", "EmbeddedIdentity", "Identity", "DeviceStorage", "SharedDevice",
    "NotifyCenter", "DBusTransport", "SQLite",
]

/// libdbus, and nothing of notifications.
let bus = family(
    "Bus",
    [
        .systemLibrary(name: "CDBus", pkgConfig: "dbus-1", providers: [.apt(["libdbus-1-dev"])]),
        // Calls of Linux that Swift's Glibc module lacks.
        .target(name: "CLinux"),
        library("DBusTransport", ["CDBus", "CLinux"]),
        // For --version of every program.
        .target(name: "ProjectVersion"),
        // A process that observes, posts and ends, or forks. Its arguments say which.
        program("bus-probe", ["DBusTransport"], path: "DBusTransportTests/BusProbe"),
        tests("DBusTransportTests", ["DBusTransport"]),
    ]
)

/// The centers, and Apple's spellings of them.
let notifications = family(
    "Notifications",
    [
        library("NotifyCenter", ["DBusTransport"]),
        library("NotifyCenterFoundation", center),
        library("AppleNotifications", ["NotifyCenterFoundation"] + center),
        // What CoreFoundation's headers hide on Linux.
        .target(name: "CCoreFoundationNotifications"),
        library("CoreFoundationNotifications", ["NotifyCenterFoundation", "CCoreFoundationNotifications"] + center),

        // A process with a center, which carries out the commands of its standard input, for the tests between processes.
        program("center-probe", ["NotifyCenter"], path: "NotifyCenterTests/CenterProbe"),
        tests("NotifyCenterTests", ["notifyutil"] + center),
        // The other process of the tests. Its arguments say what it observes and posts.
        program("foundation-probe", ["NotifyCenterFoundation"], path: "NotifyCenterFoundationTests/FoundationProbe"),
        tests("NotifyCenterFoundationTests", ["NotifyCenterFoundation"] + center),
        // Swift code as people write it for Apple's platforms, in the language mode that most of them use.
        program(
            "ported-app",
            ["AppleNotifications", "notify"],
            path: "AppleNotificationsTests/PortedApp",
            settings: [.swiftLanguageMode(.v5)]
        ),
        tests("AppleNotificationsTests", ["AppleNotifications"] + center),
        // Code as people write it for Apple's platforms: it imports nothing of this package.
        program(
            "unmodified-app",
            ["CoreFoundationNotifications"],
            path: "CoreFoundationNotificationsTests/UnmodifiedApp"
        ),
        // Calls the functions that its standard input names, and prints the arguments that its callbacks get.
        program("scripted-app", ["CoreFoundationNotifications"], path: "CoreFoundationNotificationsTests/ScriptedApp"),
        tests(
            "CoreFoundationNotificationsTests",
            ["CoreFoundationNotifications", "AppleNotifications"] + center,
            exclude: ["Programs"]
        ),
    ]
)

/// notify(3), its service and its command.
let notify3 = family(
    "Notify3",
    [
        // The headers.
        .target(name: "CNotify"),
        // Queues and blocks of C callers.
        .target(name: "CDispatchQueues"),
        // The messages between library and service, and the access rules that both apply.
        library("NotifydProtocol", ["DBusTransport", "CLinux"]),
        // Tells when something changes at a path.
        library("FileWatching", ["DBusTransport"]),
        library("notify", ["CNotify", "CDispatchQueues", "CLinux", "FileWatching", "NotifydProtocol"] + center),
        library("NotifyDaemon", ["FileWatching", "NotifydProtocol"] + center),
        program("notifyd", ["NotifyDaemon", "NotifydProtocol", "DBusTransport", "ProjectVersion"]),
        // What notifyutil and notify-center have in common.
        library("CommandSupport", ["notify", "NotifydProtocol"] + center),
        program("notifyutil", ["CommandSupport", "CLinux", "notify", "NotifydProtocol", "ProjectVersion"] + center),

        .testTarget(name: "NotifydProtocolTests", dependencies: ["NotifydProtocol", "DBusTransport"]),
        tests("FileWatchingTests", ["FileWatching", "DBusTransport"]),
        // A process that calls notify(3) as its standard input says.
        program("notify-probe", ["notify", "NotifyCenter"], path: "NotifyTests/NotifyProbe"),
        // Swift code as people write it for Apple's platforms.
        program("ported-notify", ["notify"], path: "NotifyTests/PortedNotify", settings: [.swiftLanguageMode(.v5)]),
        tests("NotifyTests", ["notify", "NotifydProtocol", "notifyd", "notifyutil"] + center),
        // Another process with registrations, also under another user. Its standard input says what it does.
        program("notifyd-client", ["NotifydProtocol", "DBusTransport"], path: "NotifyDaemonTests/NotifydClient"),
        tests("NotifyDaemonTests", ["NotifyDaemon", "FileWatching", "NotifydProtocol", "notifyd"] + center),
        // A bus, notifyd and a command for the tests of notifyutil and of notify-center.
        library("ProgramBus", ["NotifyCenterTestKit", "DBusTransport"], path: "NotifyutilTests/ProgramBus"),
        tests(
            "NotifyutilTests",
            ["CommandSupport", "notify", "NotifydProtocol", "NotifyCenter", "ProjectVersion", "notifyutil", "notifyd"]
        ),
        // Processes of other users, honest and hostile.
        program("hostile-notifier", ["notify", "DBusTransport"], path: "NotifydHostileTests/HostileNotifier"),
        tests("NotifydHostileTests", ["NotifydProtocol", "DBusTransport", "notifyd"]),
        // notify(3) in C and C++, built and run as programs of others are.
        tests("CProgramTests", ["NotifydProtocol", "notifyd", "notifyutil"], exclude: ["Programs"]),
    ]
)

/// The command of all centers. Apart from notify(3), which a build without swift-argument-parser has.
let notifyCenterCommand = family(
    "Notify3",
    [
        program(
            "notify-center",
            ["CommandSupport", "notify", "NotifydProtocol", "ProjectVersion", argumentParser] + center
        ),
        tests(
            "NotifyCenterCommandTests",
            [
                "ProgramBus", "CommandSupport", "NotifydProtocol", "ProjectVersion",
                "notify-center", "notifyutil", "notifyd",
            ] + center
        ),
    ]
)

/// What an app on a shared device links.
let sharedDevice = family(
    "SharedDevice",
    [
        library("SharedDevice", ["CLinux"] + center),
        library("MSAL", ["SharedDevice"] + center),

        // An app that cleans up, and is killed at the point that its arguments name.
        program("cleanup-probe", ["SharedDevice", "NotifyCenter"], path: "SharedDeviceTests/CleanupProbe"),
        // An app that begins its cleanup and never ends it.
        program("cleanup-beginner", ["SharedDevice", "NotifyCenter"], path: "SharedDeviceTests/CleanupBeginner"),
        // An app that signs out with a PATH of the test's own.
        program("signout-probe", ["SharedDevice"] + center, path: "SharedDeviceTests/SignoutProbe"),
        // An app that follows the account, and does what its standard input says.
        program("listener-app", ["SharedDevice", argumentParser] + center, path: "SharedDeviceTests/ListenerProgram"),
        tests(
            "SharedDeviceTests",
            brokerParts + [
                logging,
                "ExampleSupport", "notifyutil", "notify-center", "shared-device", "shared-device-broker",
                "point-of-sale", "flight-briefing", "field-service", "demo",
            ],
            exclude: ["session-record.json"]
        ),
        // Swift code as people write it for shared device mode on iOS, in the language mode that most of them use.
        program(
            "ported-shared-device-app",
            ["MSAL", "AppleNotifications"],
            path: "MSALTests/PortedSharedDeviceApp",
            settings: [.swiftLanguageMode(.v5)]
        ),
        tests(
            "MSALTests",
            ["MSAL", "SharedDevice", "shared-device", "shared-device-broker", "notifyutil"] + center,
            exclude: ["Fixtures"]
        ),
    ]
)

/// Who people are: the interface of providers, and the directory of a device that has no organisation behind it.
let identity = family(
    "Identity",
    [
        library("Identity", ["SharedDevice"]),
        // The project's own four files on SQLite's C functions, because GRDB 7.10 imports Foundation, which brings ICU along: with it the broker
        // had 64 MB on the disk and 25.5 MB in memory (100 apps), without it 17 MB and 18.7 MB.
        .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
        library("SQLite", ["CSQLite"]),
        // The device's SQLite file, and the threads that wait for disk and hashes.
        library("DeviceStorage", ["DBusTransport", "SQLite"]),
        // scrypt, from libxcrypt: every Linux has it, and its "$7$" strings are a form that other tools can check.
        .systemLibrary(name: "CCrypt", pkgConfig: "libcrypt", providers: [.apt(["libcrypt-dev"])]),
        library("EmbeddedIdentity", ["Identity", "DeviceStorage", "SharedDevice", "CCrypt", "SQLite"]),

        tests("DeviceStorageTests", ["DeviceStorage", "DBusTransport", "SQLite"]),
        tests("EmbeddedIdentityTests", ["EmbeddedIdentity", "Identity", "DeviceStorage", "SharedDevice", "SQLite"]),
    ]
)

/// The device's side: the service that holds the account, and its administration.
let broker = family(
    "Broker",
    [
        library(
            "SharedDeviceBroker",
            [
                "DeviceConfiguration", "Identity", "DeviceStorage", "SharedDevice", "ProjectVersion", "SQLite", logging,
            ] + center,
            // The interface as it is installed.
            resources: [.embedInCode("Service/org.notifycenter.SharedDevice1.xml")]
        ),
        // What administrators write: the managed configuration and the apps' manifests.
        library("DeviceConfiguration", ["DBusTransport"]),
        // Makes the managed configuration of a profile for iOS.
        library("ProfileConversion", ["DeviceConfiguration", "DBusTransport"]),
        program("shared-device-broker", brokerParts + ["CLinux", "ProjectVersion", argumentParser, logging]),
        program(
            "shared-device",
            brokerParts + [
                "AppAdapters", "CLinux", "ProfileConversion", "ProjectVersion", "SharedDeviceTestKit",
                "NotifyCenterTestKit", argumentParser,
            ]
        ),

        // Commits in a loop until it is killed, for the tests of the store.
        program("commit-loop", brokerParts, path: "SharedDeviceBrokerTests/CommitLoop"),
        tests(
            "SharedDeviceBrokerTests",
            brokerParts + ["SharedDeviceSimulation", "ProjectVersion", "shared-device", "shared-device-broker"]
        ),
        tests("ProfileConversionTests", ["ProfileConversion", "DeviceConfiguration"], exclude: ["Fixtures"]),
        // A client that means harm; tests run it as another user.
        program("hostile-client", ["SharedDevice", "DBusTransport"], path: "SharedDeviceHostileTests/HostileClient"),
        tests("SharedDeviceHostileTests", brokerParts + ["shared-device", "shared-device-broker"]),
        // A listener app. Its standard input says what it does, and its environment which mistakes it makes.
        program("torture-app", ["SharedDevice"] + center, path: "SharedDeviceTortureTests/TortureApp"),
        tests(
            "SharedDeviceTortureTests",
            brokerParts + ["SharedDeviceSimulation", "shared-device-broker", "hostile-client"]
        ),
        // Broker, apps, bus and disk in one process, on a clock that is a number.
        library(
            "SharedDeviceSimulation",
            ["SharedDeviceBroker", "DeviceConfiguration", "Identity", "SharedDevice", "DBusTransport"],
            path: "SharedDeviceSimulationTests/Simulation"
        ),
        program("simulate", ["SharedDeviceSimulation"], path: "SharedDeviceSimulationTests/Simulate"),
        tests("SharedDeviceSimulationTests", brokerParts, exclude: ["mutants", "README.md"]),
    ]
)

/// What takes part in the place of programs that know nothing of shared device mode.
let adapterParts: [Target.Dependency] = ["DeviceConfiguration", "SharedDevice", "CLinux"] + center
let adapters = family(
    "Adapters",
    [
        library("AppAdapters", adapterParts),
        program("shared-device-cleanup", ["AppAdapters", "ProjectVersion", argumentParser] + adapterParts),
        program("adapter-probe", ["AppAdapters"] + adapterParts, path: "AppAdaptersTests/AdapterProbe"),
        tests("AppAdaptersTests", brokerParts + ["AppAdapters", "SharedDeviceTestKit", "shared-device-cleanup"]),
    ]
)

/// What users of the package test with, and this project itself: private buses, and a device for one test.
let testKits = family(
    "TestKits",
    [
        library("NotifyCenterTestKit", ["CLinux"] + center),
        library("SharedDeviceTestKit", ["DeviceConfiguration", "SharedDevice", "NotifyCenterTestKit"] + center),
        tests(
            "SharedDeviceTestKitTests",
            [
                "SharedDeviceTestKit", "DeviceConfiguration", "SharedDevice", "shared-device",
                "shared-device-broker", "point-of-sale", "flight-briefing", "field-service",
            ] + center
        ),
    ]
)

/// Listener apps, each a process of its own, and the demonstration that runs them.
let examples: [Target] = [
    library("ExampleSupport", ["SharedDevice", "NotifyCenter", argumentParser], path: "Examples/Support"),
    program(
        "point-of-sale",
        ["ExampleSupport", "SharedDevice", "SQLite", argumentParser],
        path: "Examples/PointOfSale"
    ),
    program("flight-briefing", ["ExampleSupport", "SharedDevice", argumentParser], path: "Examples/FlightBriefing"),
    program("field-service", ["ExampleSupport", "SharedDevice", argumentParser], path: "Examples/FieldService"),
    program(
        "demo",
        [
            "ExampleSupport", "SharedDeviceTestKit", "DeviceConfiguration", "NotifyCenterTestKit", "SharedDevice",
            "NotifyCenter", argumentParser,
            // It starts these programs, and finds them built beside itself.
            "point-of-sale", "flight-briefing", "field-service", "shared-device", "shared-device-broker",
        ],
        path: "Examples/Demo"
    ),
]

// MARK: Package

let package = Package(
    name: "notify-center",
    products: [
        // Light: libdbus-1 and the standard library, nothing else.
        .library(name: "NotifyCenter", targets: ["NotifyCenter"]),
        .library(name: "NotifyCenterTestKit", targets: ["NotifyCenterTestKit"]),
        // notify(3): `import notify`; for C, C++ …: -ldarwin-notify. The name `libnotify` is that of GNOME's.
        .library(name: "notify", targets: ["notify"]),
        .library(name: "darwin-notify", type: .dynamic, targets: ["notify"]),
        // Apple source: each stands by itself, see the porting guide. These link Foundation.
        .library(name: "NotifyCenterFoundation", targets: ["NotifyCenterFoundation"]),
        .library(name: "AppleNotifications", targets: ["AppleNotifications"]),
        .library(name: "CoreFoundationNotifications", targets: ["CoreFoundationNotifications"]),
        // The same for C, C++ …: -lCFNotificationCenter. SwiftPM cannot link it with `--static-swift-stdlib`; name another product there.
        .library(name: "CFNotificationCenter", type: .dynamic, targets: ["CoreFoundationNotifications"]),
        // What an app on a shared device links.
        .library(name: "SharedDevice", targets: ["SharedDevice"]),
        // The same with MSAL's names, for code that was written for shared device mode on iOS: `import MSAL`.
        .library(name: "MSALCompatibility", targets: ["MSAL"]),
        // A device of a test's own: bus, broker, users, apps, faults.
        .library(name: "SharedDeviceTestKit", targets: ["SharedDeviceTestKit"]),
    ]
        + ["notifyd", "notifyutil", "notify-center", "shared-device", "shared-device-broker", "shared-device-cleanup"]
        .map { .executable(name: $0, targets: [$0]) },
    dependencies: [
        // Command lines, except notifyutil's, whose grammar is Darwin's.
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        // The broker's log, in the form that Swift services share.
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    ],
    targets: bus + notifications + notify3 + notifyCenterCommand + sharedDevice + identity + broker + adapters
        + testKits + examples,
    swiftLanguageModes: [.v6]
)

// Without shared device mode, for `make check`: a change of the notification libraries is built and tested within seconds.
if Context.environment["NOTIFY_CENTER_CORE"] != nil {
    package.targets = bus + notifications + notify3 + testKits.filter { $0.name == "NotifyCenterTestKit" }
    package.dependencies = []
    package.products = []
}

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
