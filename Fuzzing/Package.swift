// swift-tools-version:6.2

import PackageDescription

/// A module of the product, compiled here with the fuzzer's instrumentation. `Modules` and `Extensions` are links to the
/// product's `Sources` and `Extensions`: in one package the harness can use `package` declarations.
func module(_ path: String, _ dependencies: Target.Dependency...) -> Target {
    let folder = String(path.split(separator: "/").last ?? "")
    return .target(name: folder, dependencies: dependencies, path: path)
}

func systemModule(_ path: String, _ pkgConfig: String) -> Target {
    let folder = String(path.split(separator: "/").last ?? "")
    return .systemLibrary(name: folder, path: path, pkgConfig: pkgConfig)
}

// A separate package, so that a build of the product does not compile the fuzzer, and the flags below do not affect the
// product.
let package = Package(
    name: "notify-center-fuzzing",
    targets: [
        module("Modules/Basics/CLinux"),
        module("Modules/Basics/Basics", "CLinux"),
        .target(name: "COpenSSL", path: "Modules/Basics/COpenSSL", linkerSettings: [.linkedLibrary("crypto")]),
        module("Modules/Basics/Cryptography", "COpenSSL", "Basics"),
        systemModule("Modules/Bus/CDBus", "dbus-1"),
        module("Modules/Bus/DBus", "CDBus", "CLinux", "Basics"),
        module("Modules/Bus/DBusService", "CDBus", "DBus", "Basics"),
        module("Modules/Notifications/NotifyCenter", "DBus", "Basics"),
        module("Modules/SharedDevice/SharedDevice", "CLinux", "NotifyCenter", "DBus", "Basics"),
        module("Modules/Broker/Identity", "Cryptography", "SharedDevice", "DBus", "DBusService", "Basics"),
        module("Modules/Broker/DeviceConfiguration", "Cryptography", "SharedDevice", "DBus", "Identity", "Basics"),
        systemModule("Extensions/Organisation/Sources/CCurl", "libcurl"),
        module("Extensions/Organisation/Sources/HTTPClient", "CCurl", "DBus", "Identity", "Basics"),
        module(
            "Extensions/Organisation/Sources/OpenIDConnect",
            "HTTPClient",
            "Identity",
            "DBus",
            "Cryptography",
            "Basics"
        ),
        module("Extensions/Organisation/Sources/HTTPListening", "DBus", "Basics"),
        module("Extensions/Fleet/Sources/Fleet", "Cryptography", "Basics"),
        .executableTarget(
            name: "fuzz",
            dependencies: [
                "CDBus", "Basics", "DBus", "Cryptography", "NotifyCenter", "HTTPClient",
                "HTTPListening", "OpenIDConnect", "DeviceConfiguration", "Fleet", "Identity",
            ]
        ),
    ],
    swiftLanguageModes: [.v6]
)

for target in package.targets where [.executable, .regular].contains(target.type) {
    target.swiftSettings = [
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("MemberImportVisibility"),
        .enableUpcomingFeature("InternalImportsByDefault"),
        .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    ]
}
