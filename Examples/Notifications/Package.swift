// swift-tools-version:6.2

import PackageDescription

// A program outside this project replaces the path with: url: "https://github.com/notify-center/notify-center", from:
// "1.0.0"
let package = Package(
    name: "notifications",
    dependencies: [.package(name: "notify-center", path: "../..")],
    targets: [
        .executableTarget(name: "poster", dependencies: [.product(name: "NotifyCenter", package: "notify-center")]),
        .executableTarget(name: "listener", dependencies: [.product(name: "NotifyCenter", package: "notify-center")]),
        .target(name: "Orders", dependencies: [.product(name: "NotifyCenterFoundation", package: "notify-center")]),
        .executableTarget(name: "typed-poster", dependencies: ["Orders"]),
        .executableTarget(name: "typed-listener", dependencies: ["Orders"]),
    ]
)
