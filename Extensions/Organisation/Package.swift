// swift-tools-version:6.2

import PackageDescription

let argumentParser: Target.Dependency = .product(name: "ArgumentParser", package: "swift-argument-parser")
let logging: Target.Dependency = .product(name: "Logging", package: "swift-log")

/// A library or program of the root package. A target names only what its other dependencies do not bring along.
func root(_ name: String) -> Target.Dependency { .product(name: name, package: "notify-center") }

let package = Package(
    name: "organisation",
    products: [
        .executable(name: "shared-device-identity", targets: ["shared-device-identity"]),
        .executable(name: "shared-device-sign-in", targets: ["shared-device-sign-in"]),
        .executable(name: "shared-device-microsoft-broker", targets: ["shared-device-microsoft-broker"]),
    ],
    dependencies: [
        .package(name: "notify-center", path: "../.."),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    ],
    targets: [
        // Not async-http-client, which would bring a dozen packages and a second BoringSSL along. Every Linux has
        // libcurl, and the distribution provides security updates for it.
        .systemLibrary(
            name: "CCurl",
            path: "Sources/CCurl",
            pkgConfig: "libcurl",
            providers: [.apt(["libcurl4-openssl-dev"])]
        ),
        .target(name: "HTTPClient", dependencies: ["CCurl", root("Identity")], path: "Sources/HTTPClient"),
        // An HTTP server for logout tokens of the provider and for the pages of a sign-in. Its clients are untrusted.
        .target(name: "HTTPListening", dependencies: [root("DBus")], path: "Sources/HTTPListening"),
        // An organisation's provider: its requests, and the meaning of its responses.
        .target(name: "OpenIDConnect", dependencies: ["HTTPClient"], path: "Sources/OpenIDConnect"),
        // The broker's requests to a provider, for OpenID Connect.
        .target(
            name: "OrganisationIdentity",
            dependencies: ["HTTPListening", "OpenIDConnect"],
            path: "Sources/OrganisationIdentity"
        ),
        // The only program here that sends requests over the network.
        .executableTarget(
            name: "shared-device-identity",
            dependencies: ["OrganisationIdentity", root("ServiceSupport")],
            path: "Sources/shared-device-identity"
        ),
        // QR codes. It needs nothing but the C library; the Swift packages for it bring CoreGraphics or Foundation.
        .systemLibrary(
            name: "CQRCode",
            path: "Sources/CQRCode",
            pkgConfig: "libqrencode",
            providers: [.apt(["libqrencode-dev"])]
        ),
        .target(
            name: "SignInPrompt",
            dependencies: ["CQRCode", "HTTPListening", root("AppAdapters"), root("CommandParts")],
            path: "Sources/SignInPrompt"
        ),
        .executableTarget(
            name: "shared-device-sign-in",
            dependencies: ["SignInPrompt", argumentParser],
            path: "Sources/shared-device-sign-in"
        ),
        // The device's account for Microsoft's own clients on Linux.
        .target(name: "MicrosoftBroker", dependencies: [root("DeviceConfiguration")], path: "Sources/MicrosoftBroker"),
        .executableTarget(
            name: "shared-device-microsoft-broker",
            dependencies: ["MicrosoftBroker", root("AppAdapters"), argumentParser],
            path: "Sources/shared-device-microsoft-broker"
        ),
        // For tests: a provider with deliberate mistakes, a real provider, and the people who sign in there.
        .target(
            name: "TestProviders",
            dependencies: ["OpenIDConnect", root("NotifyCenterTestKit")],
            path: "Tests/OpenIDConnectTests/TestProviders"
        ),
        // An app that signs a user in at the prompt.
        .executableTarget(
            name: "sign-in-app",
            dependencies: [root("SharedDevice")],
            path: "Tests/SignInPromptTests/SignInApp"
        ),
        .testTarget(
            name: "OrganisationTests",
            dependencies: [
                "MicrosoftBroker", "OrganisationIdentity", "SignInPrompt", "TestProviders", root("EmbeddedIdentity"),
                "sign-in-app", "demo-identity", "shared-device-microsoft-broker", "shared-device-identity",
                "shared-device-sign-in", root("shared-device"), root("shared-device-broker"), root("point-of-sale"),
                root("flight-briefing"), root("field-service"),
            ],
            path: "Tests",
            exclude: [
                "OpenIDConnectTests/TestProviders", "Providers", "SignInPromptTests/SignInApp",
                "SignInPromptTests/login-page", "SignInPromptTests/page-visitor", "django-check", "django_device.py",
                "msal-check", "msal_client.py", "msal_device.py", "msal_statuses.py",
            ]
        ),
        .executableTarget(
            name: "demo-identity",
            dependencies: [
                "TestProviders", root("DemoStage"), "shared-device-identity", "shared-device-sign-in",
                root("shared-device"), root("shared-device-broker"), root("point-of-sale"), root("flight-briefing"),
                root("field-service"),
            ],
            path: "Sources/demo-identity",
            exclude: ["person"]
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
