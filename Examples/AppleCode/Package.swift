// swift-tools-version:6.2

import PackageDescription

let package = Package(
    name: "apple-code",
    dependencies: [.package(name: "notify-center", path: "../..")],
    targets: [
        .executableTarget(
            name: "receiver",
            dependencies: [
                .product(name: "AppleNotifications", package: "notify-center", condition: .when(platforms: [.linux]))
            ]
        )
    ],
    // Most code for iOS uses this mode.
    swiftLanguageModes: [.v5]
)
