// swift-tools-version:6.2

import PackageDescription

/// A module of the product, compiled here with the fuzzer's instrumentation. `Modules` is a link to the product's `Sources`: in one package the
/// harness sees what is `package`, and a product for each internal module is not needed.
func module(
    _ path: String,
    _ dependencies: Target.Dependency...,
    sources: [String]? = nil,
    as name: String? = nil
)
    -> Target
{
    let folder = String(path.split(separator: "/").last ?? "")
    return .target(name: name ?? folder, dependencies: dependencies, path: "Modules/\(path)", sources: sources)
}

func systemModule(_ path: String, _ pkgConfig: String) -> Target {
    let folder = String(path.split(separator: "/").last ?? "")
    return .systemLibrary(name: folder, path: "Modules/\(path)", pkgConfig: pkgConfig)
}

// A package of its own, so that a build of the product compiles nothing of it, and the flags below touch nothing of the product.
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
        // The parser of the logout listener alone: what surrounds it needs a socket.
        module("Identity/OrganisationIdentity/Logout", sources: ["ReceivedRequest.swift"], as: "LogoutRequests"),
        module("Broker/DeviceConfiguration", "DBusTransport", "Identity", "StrictJSON"),
        module("Broker/ProfileConversion", "DeviceConfiguration", "DBusTransport"),
        module("Broker/CommandParts", "Identity", "SharedDevice"),
        module(
            "Adapters/AppAdapters",
            "DeviceConfiguration",
            "SharedDevice",
            "CLinux",
            "NotifyCenter",
            "DBusTransport"
        ),
        systemModule("SignIn/CQRCode", "libqrencode"),
        module(
            "SignIn/SignInPrompt",
            "CommandParts",
            "CQRCode",
            "Identity",
            "AppAdapters",
            "StrictJSON",
            "DeviceConfiguration",
            "SharedDevice",
            "CLinux",
            "NotifyCenter",
            "DBusTransport"
        ),
        module("Fleet/Fleet", "StrictJSON"),
        .executableTarget(
            name: "fuzz",
            dependencies: [
                "CDBus", "DBusTransport", "NotifydProtocol", "NotifyCenter", "StrictJSON", "JSONWebSignature",
                "HTTPClient",
                "OpenIDConnect", "LogoutRequests", "SignInPrompt", "DeviceConfiguration", "ProfileConversion", "Fleet",
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
