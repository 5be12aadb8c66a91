// swift-tools-version:6.2

import PackageDescription

/// A module of the product, compiled here with the fuzzer's instrumentation. `Modules` is a link to the product's
/// `Sources`: in one package the harness can use `package` declarations, and the internal modules need no products.
func module(_ path: String, _ dependencies: Target.Dependency...) -> Target {
    let folder = String(path.split(separator: "/").last ?? "")
    return .target(name: folder, dependencies: dependencies, path: "Modules/\(path)")
}

func systemModule(_ path: String, _ pkgConfig: String) -> Target {
    let folder = String(path.split(separator: "/").last ?? "")
    return .systemLibrary(name: folder, path: "Modules/\(path)", pkgConfig: pkgConfig)
}

// A separate package, so that a build of the product does not compile the fuzzer, and the flags below do not affect the
// product.
let package = Package(
    name: "notify-center-fuzzing",
    targets: [
        systemModule("Bus/CDBus", "dbus-1"),
        module("Bus/CLinux"),
        module("Bus/DBusTransport", "CDBus", "CLinux"),
        module("Notifications/NotifydProtocol", "DBusTransport", "CLinux"),
        module("Notifications/NotifyCenter", "NotifydProtocol", "DBusTransport"),
        module("SharedDevice/SharedDevice", "CLinux", "NotifyCenter", "DBusTransport"),
        systemModule("Identity/COpenSSL", "libcrypto"),
        module("Identity/Cryptography", "COpenSSL"),
        module("Identity/Identity", "Cryptography", "SharedDevice"),
        module("Identity/StrictJSON"),
        module("Identity/JSONWebSignature", "StrictJSON", "Cryptography"),
        systemModule("Identity/CCurl", "libcurl"),
        module("Identity/HTTPClient", "CCurl", "DBusTransport", "StrictJSON"),
        module(
            "Identity/OpenIDConnect",
            "HTTPClient",
            "Identity",
            "JSONWebSignature",
            "StrictJSON",
            "DBusTransport",
            "Cryptography"
        ),
        module("Identity/HTTPListening", "DBusTransport"),
        module("Broker/DeviceConfiguration", "DBusTransport", "Identity", "StrictJSON"),
        module("Broker/ProfileConversion", "DeviceConfiguration", "DBusTransport"),
        module("Fleet/Fleet", "StrictJSON"),
        .executableTarget(
            name: "fuzz",
            dependencies: [
                "CDBus", "DBusTransport", "NotifydProtocol", "NotifyCenter", "StrictJSON", "JSONWebSignature",
                "HTTPClient", "HTTPListening", "OpenIDConnect", "DeviceConfiguration", "ProfileConversion", "Fleet",
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
