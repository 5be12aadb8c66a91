// swift-tools-version:6.2

import PackageDescription

/// A library or program of the root package. A target names only what its other dependencies do not bring along.
func root(_ name: String) -> Target.Dependency { .product(name: name, package: "notify-center") }

let package = Package(
    name: "kiosk",
    products: ["shared-device-activity", "shared-device-screen"].map { .executable(name: $0, targets: [$0]) },
    dependencies: [
        .package(name: "notify-center", path: "../.."),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    ],
    targets: [
        .systemLibrary(
            name: "CWaylandClient",
            path: "Sources/CWaylandClient",
            pkgConfig: "wayland-client",
            providers: [.apt(["libwayland-dev"])]
        ),
        // Not libXss, which brings libX11 and libXext along.
        .systemLibrary(
            name: "CXCBScreenSaver",
            path: "Sources/CXCBScreenSaver",
            pkgConfig: "xcb-screensaver",
            providers: [.apt(["libxcb-screensaver0-dev"])]
        ),
        // In C, because the interfaces of both libraries are macros, listeners and variadic functions.
        .target(
            name: "CSeatInput",
            dependencies: ["CWaylandClient", "CXCBScreenSaver"],
            path: "Sources/CSeatInput",
            linkerSettings: [.linkedLibrary("xcb")]
        ),
        // When the input devices of a graphical session were used, and the reports of that to the broker.
        .target(name: "SeatInput", dependencies: ["CSeatInput", root("SharedDevice")], path: "Sources/SeatInput"),
        .executableTarget(
            name: "shared-device-activity",
            dependencies: ["SeatInput", .product(name: "ArgumentParser", package: "swift-argument-parser")],
            path: "Sources/shared-device-activity"
        ),
        // Text in each script that a person may read.
        .systemLibrary(
            name: "CPangoCairo",
            path: "Sources/CPangoCairo",
            pkgConfig: "pangocairo",
            providers: [.apt(["libpango1.0-dev"])]
        ),
        // What a key means, by the keyboard's layout.
        .systemLibrary(
            name: "CXKBCommon",
            path: "Sources/CXKBCommon",
            pkgConfig: "xkbcommon",
            providers: [.apt(["libxkbcommon-dev"])]
        ),
        // Pictures and input on a Wayland compositor. In C for the same reason as CSeatInput.
        .target(name: "CScreen", dependencies: ["CWaylandClient", "CXKBCommon"], path: "Sources/CScreen"),
        // What the person sees at a warning, a lock and a sign-in, and what the keys mean there.
        .target(
            name: "KioskScreen",
            dependencies: ["CScreen", "CPangoCairo", root("CommandParts")],
            path: "Sources/KioskScreen"
        ),
        .executableTarget(
            name: "shared-device-screen",
            dependencies: ["KioskScreen", .product(name: "ArgumentParser", package: "swift-argument-parser")],
            path: "Sources/shared-device-screen"
        ),
        .testTarget(
            name: "KioskTests",
            dependencies: [
                "CScreen", "KioskScreen", "SeatInput", "shared-device-activity", "shared-device-screen",
                root("SharedDeviceTestKit"), root("shared-device"), root("shared-device-broker"),
            ],
            path: "Tests/KioskTests"
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
