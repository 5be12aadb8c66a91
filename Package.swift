// swift-tools-version:6.2

import PackageDescription

// MARK: How the tables below are written
/// The packages of others, by the products that targets use.
let products = [
    "ArgumentParser": "swift-argument-parser", "Logging": "swift-log",
]

/// What many targets need together: `+center` names the whole.
let groups = [
    "+center": "NotifyCenter DBusTransport",
    "+apple": "AppleNotifications +center",
    "+notify3": "notifyutil notifyd +center",
    // What a whole broker is made of, for its programs and tests; and without its tokens, for the administrator's command.
    "+broker": "EmbeddedIdentity +store",
    "+store": "SharedDeviceBroker DeviceConfiguration NotifyCenter +people",
    "+people": "EmbeddedDirectory Identity DeviceStorage SharedDevice +database",
    "+service": "ServiceSupport ProjectVersion ArgumentParser Logging",
    // What speaks to an organisation's provider.
    "+openIDConnect": "OpenIDConnect HTTPClient Identity JSONWebSignature StrictJSON DBusTransport Cryptography",
    "+oidc": "OrganisationIdentity HTTPListening SharedDevice +openIDConnect",
    "+database": "SQLite DBusTransport",
    "+command": "+store CLinux CommandParts DeviceView ProfileConversion ProjectVersion ArgumentParser",
    "+prompt": "+broker SignInPrompt HTTPListening StrictJSON",
    "+testKits": "SharedDeviceTestKit NotifyCenterTestKit",
    "+arguments": "DeviceConfiguration SharedDevice NotifyCenter ArgumentParser",
    // What takes part in the place of a program that knows nothing of shared device mode.
    "+adapter": "DeviceConfiguration SharedDevice CLinux +center",
    "+apps": "point-of-sale flight-briefing field-service",
    // Devices with an agent and two apps, and their controller, as processes.
    "+fleet": "SharedDeviceTestKit +device shared-device-agent shared-device-controller",
    "+fleetProgram": "FleetService Fleet MQTTClient ProjectVersion DBusTransport ArgumentParser",
    "+device": "+commands point-of-sale flight-briefing",
    "+commands": "shared-device shared-device-broker",
    "+stage": "DemoStage ExampleSupport +testKits +arguments",
    "+signIn": "shared-device-identity shared-device-sign-in +commands +apps",
]

func names(_ words: String) -> [String] { words.split(whereSeparator: \.isWhitespace).map(String.init) }

/// The dependencies that the words name: targets, products of other packages, groups.
func dependencies(_ words: String) -> [Target.Dependency] {
    names(words).flatMap { word in
        if let group = groups[word] { return dependencies(group) }
        return [products[word].map { .product(name: word, package: $0) } ?? .byName(name: word)]
    }
}

/// A module that others import. `path` is for one in the folder of a test target.
func library(_ name: String, _ words: String = "", path: String? = nil, resources: [Resource]? = nil) -> Target {
    .target(name: name, dependencies: dependencies(words), path: path, resources: resources)
}

/// A library of the system, and the Debian package that has its headers.
func systemLibrary(_ name: String, _ pkgConfig: String, package: String) -> Target {
    .systemLibrary(name: name, pkgConfig: pkgConfig, providers: [.apt([package])])
}

/// A program. `path` is for one that tests start: it names the test target that it serves, and its folder there.
func program(_ name: String, _ words: String, path: String? = nil, isSwift5: Bool = false) -> Target {
    let settings: [SwiftSetting] = isSwift5 ? [.swiftLanguageMode(.v5)] : []
    return .executableTarget(name: name, dependencies: dependencies(words), path: path, swiftSettings: settings)
}

/// A test target. All of them may use the test kit.
func tests(_ name: String, _ words: String, exclude: [String] = []) -> Target {
    .testTarget(name: name, dependencies: dependencies(words + " NotifyCenterTestKit"), exclude: exclude)
}

/// A family of targets is a folder: its libraries and programs in Sources, its tests in Tests. A family uses those above it here, never
/// one below. A test target gets its helpers as dependencies, and leaves their folders out of its sources.
func family(_ name: String, _ targets: Target...) -> [Target] {
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

// MARK: Families
/// libdbus, and nothing of notifications.
let bus = family(
    "Bus",
    systemLibrary("CDBus", "dbus-1", package: "libdbus-1-dev"),
    // Calls of Linux that Swift's Glibc module lacks.
    library("CLinux"),
    library("DBusTransport", "CDBus CLinux"),
    library("ProjectVersion"),  // For --version of every program.
    // A process that observes, posts and ends, or forks. Its arguments say which.
    program("bus-probe", "DBusTransport CLinux", path: "DBusTransportTests/BusProbe"),
    tests("DBusTransportTests", "DBusTransport CLinux")
)

/// The centers, and Apple's spellings of them.
let notifications = family(
    "Notifications",
    // The messages between the library of notify(3) and its service, which posts reserved names for the Darwin center
    // too; and the access rules.
    library("NotifydProtocol", "DBusTransport CLinux"),
    library("NotifyCenter", "NotifydProtocol DBusTransport"),
    library("NotifyCenterFoundation", "+center"),
    library("AppleNotifications", "NotifyCenterFoundation +center"),
    // What CoreFoundation's headers hide on Linux.
    library("CCoreFoundationNotifications"),
    library("CoreFoundationNotifications", "NotifyCenterFoundation CCoreFoundationNotifications +center"),
    // A process with a center, which carries out the commands of its standard input, for the tests between processes.
    program("center-probe", "NotifyCenter", path: "NotifyCenterTests/CenterProbe"),
    .testTarget(name: "NotifydProtocolTests", dependencies: dependencies("NotifydProtocol DBusTransport")),
    tests("NotifyCenterTests", "notifyutil +center"),
    program("foundation-probe", "NotifyCenterFoundation", path: "NotifyCenterFoundationTests/FoundationProbe"),
    tests("NotifyCenterFoundationTests", "NotifyCenterFoundation +center"),
    // Swift code as people write it for Apple's platforms, in the language mode that most of them use.
    program("ported-app", "AppleNotifications notify", path: "AppleNotificationsTests/PortedApp", isSwift5: true),
    tests("AppleNotificationsTests", "AppleNotifications +center"),
    // Code as people write it for Apple's platforms: it imports nothing of this package.
    program("unmodified-app", "CoreFoundationNotifications", path: "CoreFoundationNotificationsTests/UnmodifiedApp"),
    program("scripted-app", "CoreFoundationNotifications", path: "CoreFoundationNotificationsTests/ScriptedApp"),
    tests("CoreFoundationNotificationsTests", "CoreFoundationNotifications +apple", exclude: ["Programs"])
)

/// notify(3), its service and its command.
let notify3 = family(
    "Notify3",
    library("CNotify"),  // The headers.
    library("CDispatchQueues"),  // Queues and blocks of C callers.
    // Tells when something changes at a path.
    library("FileWatching", "DBusTransport"),
    library("notify", "CNotify CDispatchQueues CLinux FileWatching NotifydProtocol +center"),
    library("NotifyDaemon", "FileWatching NotifydProtocol +center"),
    program("notifyd", "NotifyDaemon NotifydProtocol DBusTransport ProjectVersion"),
    // What notifyutil and notify-center have in common.
    library("CommandSupport", "notify NotifydProtocol +center"),
    program("notifyutil", "CommandSupport CLinux notify NotifydProtocol ProjectVersion +center"),
    tests("FileWatchingTests", "FileWatching DBusTransport"),
    // A process that calls notify(3) as its standard input says.
    program("notify-probe", "notify NotifyCenter", path: "NotifyTests/NotifyProbe"),
    // Swift code as people write it for Apple's platforms.
    program("ported-notify", "notify", path: "NotifyTests/PortedNotify", isSwift5: true),
    tests("NotifyTests", "notify NotifydProtocol notifyd notifyutil +center"),
    // Another process with registrations, also under another user. Its standard input says what it does.
    program("notifyd-client", "NotifydProtocol DBusTransport", path: "NotifyDaemonTests/NotifydClient"),
    tests("NotifyDaemonTests", "NotifyDaemon FileWatching NotifydProtocol notifyd +center"),
    // A bus, notifyd and a command for the tests of notifyutil and of notify-center.
    library("ProgramBus", "NotifyCenterTestKit DBusTransport", path: "NotifyutilTests/ProgramBus"),
    tests("NotifyutilTests", "CommandSupport notify NotifydProtocol NotifyCenter ProjectVersion notifyutil notifyd"),
    // Processes of other users, honest and hostile.
    program("hostile-notifier", "notify DBusTransport", path: "NotifydHostileTests/HostileNotifier"),
    tests("NotifydHostileTests", "NotifydProtocol DBusTransport notifyd"),
    // notify(3) in C and C++, built and run as programs of others are.
    tests("CProgramTests", "NotifydProtocol notifyd notifyutil +center", exclude: ["Programs"])
)

/// The command of all centers. Apart from notify(3), which a build without swift-argument-parser has.
let notifyCenterCommand = family(
    "Notify3",
    program("notify-center", "CommandSupport notify NotifydProtocol ProjectVersion ArgumentParser +center"),
    tests("NotifyCenterCommandTests", "ProgramBus CommandSupport NotifydProtocol ProjectVersion notify-center +notify3")
)

/// What an app on a shared device links.
let sharedDevice = family(
    "SharedDevice",
    library("SharedDevice", "CLinux +center"),
    library("MSAL", "SharedDevice +center"),
    // An app that cleans up, and is killed at the point that its arguments name.
    program("cleanup-probe", "SharedDevice NotifyCenter", path: "SharedDeviceTests/CleanupProbe"),
    // An app that follows the account, and does what its standard input says.
    program("listener-app", "SharedDevice ArgumentParser +center", path: "SharedDeviceTests/ListenerProgram"),
    tests(
        "SharedDeviceTests",
        "+broker +service JSONWebSignature StrictJSON ExampleSupport notifyutil notify-center +commands +apps demo",
        exclude: ["session-record.json"]
    ),
    // Swift code as people write it for shared device mode on iOS, in the language mode that most of them use.
    program("ported-shared-device-app", "MSAL +apple", path: "MSALTests/PortedSharedDeviceApp", isSwift5: true),
    tests("MSALTests", "MSAL SharedDevice +commands notifyutil +center", exclude: ["Fixtures"])
)

/// Who people are: the interface of providers, and the directory of a device that has no organisation behind it.
let identity = family(
    "Identity",
    library("Identity", "Cryptography SharedDevice"),
    // The project's own four files on SQLite's C functions, because GRDB 7.10 imports Foundation, which brings ICU along: with it the broker
    // had 64 MB on the disk and 25.5 MB in memory (100 apps), without it 17 MB and 18.7 MB.
    systemLibrary("CSQLite", "sqlite3", package: "libsqlite3-dev"),
    library("SQLite", "CSQLite"),
    // The device's SQLite file, and the threads that wait for disk and hashes.
    library("DeviceStorage", "+database"),
    // scrypt, from libxcrypt: every Linux has it, and its "$7$" strings are a form that other tools can check.
    systemLibrary("CCrypt", "libcrypt", package: "libcrypt-dev"),
    // The device's own people.
    library("EmbeddedDirectory", "Cryptography Identity DeviceStorage SharedDevice StrictJSON CCrypt +database"),
    library("EmbeddedIdentity", "JSONWebSignature StrictJSON +people"),
    // JSON, forms and addresses from strangers: bounded, and no member twice. Foundation's decoder takes either of two members of one name.
    library("StrictJSON"),
    // OpenSSL 3, not swift-crypto: that is BoringSSL compiled anew, 125 s of a debug build and 6 MB of each program. libcrypto is on every Linux, and
    // its distribution mends it.
    systemLibrary("COpenSSL", "libcrypto", package: "libssl-dev"),
    library("Cryptography", "COpenSSL"),
    // Signed tokens, the keys of who signs them, and the device's own.
    library("JSONWebSignature", "StrictJSON Cryptography"),
    // Not async-http-client, which would bring a dozen packages and a second BoringSSL along: libcurl is on every Linux, and its flaws are mended
    // by the distribution.
    systemLibrary("CCurl", "libcurl", package: "libcurl4-openssl-dev"),
    library("HTTPClient", "CCurl DBusTransport StrictJSON"),
    // Serves what strangers on the network, and the browser of a sign-in, ask for.
    library("HTTPListening", "DBusTransport"),
    // An organisation's provider: what is asked, and what its answers mean.
    library("OpenIDConnect", "HTTPClient Identity JSONWebSignature StrictJSON DBusTransport Cryptography"),
    // Records of an organisation's provider on the disk: AES-256-GCM, bound to their use.
    library("RecordVault", "Identity Cryptography"),
    // What the broker asks of a provider, answered by one that speaks OpenID Connect.
    library("OrganisationIdentity", "+openIDConnect HTTPListening SharedDevice"),
    // The same questions over the bus, asked and answered. Without curl and crypto.
    library("IdentityService", "Identity SharedDevice DBusTransport"),
    tests("CryptographyTests", "Cryptography", exclude: ["vectors.txt"]),
    tests("RecordVaultTests", "RecordVault Identity"),
    tests("HTTPClientTests", "HTTPClient StrictJSON"),
    tests("HTTPListeningTests", "HTTPListening"),
    // A provider that makes mistakes, a real one, and who signs in there.
    library("TestProviders", "+oidc NotifyCenterTestKit", path: "OpenIDConnectTests/TestProviders"),
    tests("OpenIDConnectTests", "+openIDConnect"),
    tests("OrganisationIdentityTests", "TestProviders +oidc"),
    tests("JSONWebSignatureTests", "JSONWebSignature StrictJSON Cryptography COpenSSL"),
    tests("DeviceStorageTests", "DeviceStorage DBusTransport SQLite"),
    tests("EmbeddedIdentityTests", "EmbeddedIdentity +people HTTPClient JSONWebSignature StrictJSON Cryptography")
)

/// The device's side: the service that holds the account, and its administration.
let broker = family(
    "Broker",
    library(
        "SharedDeviceBroker",
        "DeviceConfiguration Identity DeviceStorage SharedDevice ProjectVersion SQLite CLinux Logging +center",
        resources: [.embedInCode("Service/org.notifycenter.SharedDevice1.xml")]
    ),
    // What administrators write: the managed configuration and the apps' manifests.
    library("DeviceConfiguration", "DBusTransport Identity StrictJSON"),
    library("CommandParts", "Identity SharedDevice"),  // Of all commands: secrets at a terminal, exit statuses.
    // A device as its observers see it: a terminal's screen, metrics.
    library("DeviceView", "DeviceConfiguration SharedDevice DBusTransport"),
    // Makes the managed configuration of a profile for iOS.
    library("ProfileConversion", "DeviceConfiguration DBusTransport"),
    // What programs that run as services do alike: log, signs of life.
    library("ServiceSupport", "DeviceConfiguration DeviceStorage CLinux StrictJSON ArgumentParser Logging"),
    program("shared-device-broker", "+broker RecordVault IdentityService +service"),
    // The only program of the device that speaks to the network.
    program("shared-device-identity", "+oidc IdentityService DeviceConfiguration CLinux +service"),
    program("shared-device", "+command AppAdapters Fleet IdentityService +testKits"),
    // Commits in a loop until it is killed, for the tests of the store.
    program("commit-loop", "+broker", path: "SharedDeviceBrokerTests/CommitLoop"),
    tests("SharedDeviceBrokerTests", "+broker RecordVault SharedDeviceSimulation ProjectVersion StrictJSON +commands"),
    tests("DeviceViewTests", "DeviceView SharedDevice DBusTransport shared-device"),
    tests("SharedDeviceIdentityTests", "TestProviders +oidc IdentityService demo-identity +signIn"),
    tests("ProfileConversionTests", "ProfileConversion DeviceConfiguration", exclude: ["Fixtures"]),
    // A client that means harm; tests run it as another user.
    program("hostile-client", "SharedDevice DBusTransport", path: "SharedDeviceHostileTests/HostileClient"),
    tests("SharedDeviceHostileTests", "+broker shared-device shared-device-broker", exclude: ["Programs"]),
    // A listener app. Its standard input says what it does, and its environment which mistakes it makes.
    program("torture-app", "SharedDevice +center", path: "SharedDeviceTortureTests/TortureApp"),
    tests("SharedDeviceTortureTests", "+broker SharedDeviceSimulation +commands shared-device-cleanup hostile-client"),
    // Broker, apps, bus and disk in one process, on a clock that is a number.
    library("SharedDeviceSimulation", "+broker", path: "SharedDeviceSimulationTests/Simulation"),
    program("simulate", "SharedDeviceSimulation", path: "SharedDeviceSimulationTests/Simulate"),
    tests("SharedDeviceSimulationTests", "+broker", exclude: ["mutants", "README.md"])
)

/// What takes part in the place of programs that know nothing of shared device mode.
let adapters = family(
    "Adapters",
    library("AppAdapters", "+adapter"),
    program("shared-device-cleanup", "AppAdapters ProjectVersion ArgumentParser +adapter"),
    program("adapter-probe", "AppAdapters +adapter", path: "AppAdaptersTests/AdapterProbe"),
    tests("AppAdaptersTests", "+broker AppAdapters SharedDeviceTestKit shared-device-cleanup", exclude: ["Programs"])
)

/// What a person sees who signs in.
let signIn = family(
    "SignIn",
    // QR codes. It needs nothing but the C library; the Swift packages for it bring CoreGraphics or Foundation.
    systemLibrary("CQRCode", "libqrencode", package: "libqrencode-dev"),
    library("SignInPrompt", "CommandParts CQRCode HTTPListening Identity AppAdapters StrictJSON +adapter"),
    program("shared-device-sign-in", "SignInPrompt CommandParts ProjectVersion ArgumentParser +adapter"),
    // An app that signs somebody in at the prompt.
    program("sign-in-app", "SharedDevice +center", path: "SignInPromptTests/SignInApp"),
    tests("SignInPromptTests", "+prompt shared-device-sign-in +commands", exclude: ["login-page", "page-visitor"])
)

/// The device's account for Microsoft's own clients on Linux.
let microsoft = family(
    "Microsoft",
    library("MicrosoftBroker", "Identity StrictJSON +adapter"),
    program("shared-device-microsoft-broker", "MicrosoftBroker AppAdapters ProjectVersion ArgumentParser +adapter"),
    tests("MicrosoftBrokerTests", "+broker +signIn TestProviders shared-device-microsoft-broker")
)

/// Many devices at once: orders to all of them by way of an MQTT server, and who has carried them out.
let fleet = family(
    "Fleet",
    // MQTT 5 with client certificates. mqtt-nio would bring SwiftNIO and a second TLS library along; libmosquitto is mended by the distribution.
    systemLibrary("CMosquitto", "libmosquitto", package: "libmosquitto-dev"),
    library("MQTTClient", "CMosquitto DBusTransport"),
    // What agent, controller and command say to each other, the decisions of the first two, and how their programs begin and end.
    library("Fleet", "StrictJSON"),
    library("FleetService", "Fleet MQTTClient ServiceSupport DBusTransport ArgumentParser Logging"),
    program("shared-device-agent", "+fleetProgram SharedDevice StrictJSON CLinux"),
    program("shared-device-controller", "+fleetProgram SQLite StrictJSON"),
    library("FleetStage", "MQTTClient NotifyCenterTestKit DBusTransport", path: "FleetTests/Stage"),
    library("FleetLoad", "FleetStage Fleet MQTTClient NotifyCenterTestKit DBusTransport", path: "FleetTests/Load"),
    program("fleet-load", "FleetLoad ArgumentParser", path: "FleetTests/LoadProgram"),
    tests("FleetTests", "Fleet MQTTClient SharedDevice StrictJSON +database +fleet")
)

/// The console's files that draw a round: the pages of checks have them in them.
let console = names("dom.js words.js day.js rounds.js drawing.js report.js shared-device.css")
    .map { Resource.embedInCode("Console/\($0)") }

/// What users of the package test with, and this project itself: private buses, and a device for one test.
let testKits = family(
    "TestKits",
    library("NotifyCenterTestKit", "CLinux +center"),
    library("SharedDeviceTestKit", "DeviceConfiguration SharedDevice NotifyCenterTestKit +center", resources: console),
    tests("SharedDeviceTestKitTests", "SharedDeviceTestKit DeviceConfiguration SharedDevice +commands +apps +center")
)

/// Listener apps, each a process of its own, and the demonstration that runs them.
let examples = [
    library("ExampleSupport", "+arguments", path: "Examples/Support"),
    program("point-of-sale", "ExampleSupport SharedDevice SQLite ArgumentParser", path: "Examples/PointOfSale"),
    program("flight-briefing", "ExampleSupport SharedDevice ArgumentParser", path: "Examples/FlightBriefing"),
    program("field-service", "ExampleSupport SharedDevice ArgumentParser", path: "Examples/FieldService"),
    // Apps and receipts of the demonstrations, which find the programs at the end of their lists built beside themselves.
    library("DemoStage", "ExampleSupport +testKits +arguments", path: "Examples/Stage"),
    program("demo", "+stage +commands +apps", path: "Examples/Demo"),
    program("demo-identity", "+stage TestProviders OpenIDConnect +signIn", path: "Examples/Identity/Demo"),
    program("demo-fleet", "FleetStage NotifyCenterTestKit ArgumentParser +fleet", path: "Examples/Fleet/Demo"),
]

// MARK: Package
/// NotifyCenter and notify are light: libdbus-1 and the standard library. Those for Apple source link Foundation.
let libraries = """
    NotifyCenter NotifyCenterTestKit notify NotifyCenterFoundation AppleNotifications CoreFoundationNotifications SharedDevice SharedDeviceTestKit
    """
let programs = """
    notifyd notifyutil notify-center shared-device shared-device-broker shared-device-identity shared-device-sign-in
    shared-device-cleanup shared-device-microsoft-broker shared-device-agent shared-device-controller
    """

let package = Package(
    name: "notify-center",
    products: [
        // For C, C++ …: -ldarwin-notify. The name `libnotify` is that of GNOME's.
        .library(name: "darwin-notify", type: .dynamic, targets: ["notify"]),
        // The same of CoreFoundation's functions. SwiftPM cannot link it with `--static-swift-stdlib`; name another product there.
        .library(name: "CFNotificationCenter", type: .dynamic, targets: ["CoreFoundationNotifications"]),
        // MSAL's names, for code that was written for shared device mode on iOS: `import MSAL`.
        .library(name: "MSALCompatibility", targets: ["MSAL"]),
    ]
        + names(libraries).map { .library(name: $0, targets: [$0]) }
        + names(programs).map { .executable(name: $0, targets: [$0]) },
    dependencies: [
        // Command lines, except notifyutil's, whose grammar is Darwin's.
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        // The broker's log, in the form that Swift services share.
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    ],
    targets: bus + notifications + notify3 + notifyCenterCommand + sharedDevice + identity + broker + adapters + signIn
        + microsoft + fleet + testKits + examples,
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
