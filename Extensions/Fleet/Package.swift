// swift-tools-version:6.2

import PackageDescription

let argumentParser: Target.Dependency = .product(name: "ArgumentParser", package: "swift-argument-parser")

/// A library or program of the root package. A target names only what its other dependencies do not bring along.
func root(_ name: String) -> Target.Dependency { .product(name: name, package: "notify-center") }

let package = Package(
    name: "fleet",
    products: [
        .executable(name: "shared-device-agent", targets: ["shared-device-agent"]),
        .executable(name: "shared-device-controller", targets: ["shared-device-controller"]),
        .executable(name: "shared-device-fleet", targets: ["shared-device-fleet"]),
    ],
    dependencies: [
        .package(name: "notify-center", path: "../.."),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    ],
    targets: [
        // MQTT 5 with client certificates. mqtt-nio would bring SwiftNIO and a second TLS library along. The
        // distribution provides security updates for libmosquitto.
        .systemLibrary(
            name: "CMosquitto",
            path: "Sources/CMosquitto",
            pkgConfig: "libmosquitto",
            providers: [.apt(["libmosquitto-dev"])]
        ),
        .target(name: "MQTTClient", dependencies: ["CMosquitto", root("DBus")], path: "Sources/MQTTClient"),
        // The messages between agent, controller and command, and the decisions of agent and controller.
        .target(name: "Fleet", dependencies: [root("Cryptography")], path: "Sources/Fleet"),
        .target(
            name: "FleetService",
            dependencies: ["Fleet", "MQTTClient", root("ServiceSupport")],
            path: "Sources/FleetService"
        ),
        .executableTarget(
            name: "shared-device-agent",
            dependencies: ["FleetService"],
            path: "Sources/shared-device-agent"
        ),
        .executableTarget(
            name: "shared-device-controller",
            dependencies: ["FleetService"],
            path: "Sources/shared-device-controller"
        ),
        .executableTarget(
            name: "shared-device-fleet",
            dependencies: ["Fleet", root("CommandParts"), root("DeviceStorage")],
            path: "Sources/shared-device-fleet"
        ),
        .target(
            name: "FleetStage",
            dependencies: ["MQTTClient", root("NotifyCenterTestKit")],
            path: "Tests/FleetTests/Stage"
        ),
        .target(name: "FleetLoad", dependencies: ["Fleet", "FleetStage"], path: "Tests/FleetTests/Load"),
        .executableTarget(
            name: "fleet-load",
            dependencies: ["FleetLoad", argumentParser],
            path: "Tests/FleetTests/LoadProgram"
        ),
        .testTarget(
            name: "FleetTests",
            dependencies: [
                "FleetLoad", root("SharedDeviceTestKit"), "fleet-load", "shared-device-fleet", "shared-device-agent",
                "shared-device-controller", root("point-of-sale"), root("flight-briefing"), root("shared-device"),
                root("shared-device-broker"),
            ],
            path: "Tests",
            exclude: ["FleetTests/Load", "FleetTests/LoadProgram", "FleetTests/Stage", "device-certificates"]
        ),
        .executableTarget(
            name: "demo-fleet",
            dependencies: [
                "FleetStage", root("SharedDeviceTestKit"), argumentParser, "shared-device-fleet", "shared-device-agent",
                "shared-device-controller", root("point-of-sale"), root("flight-briefing"), root("shared-device"),
                root("shared-device-broker"),
            ],
            path: "Sources/demo-fleet"
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
