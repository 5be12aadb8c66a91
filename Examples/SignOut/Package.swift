// swift-tools-version:6.2

import PackageDescription

let package = Package(
    name: "notes",
    dependencies: [.package(name: "notify-center", path: "../..")],
    targets: [
        .executableTarget(name: "notes", dependencies: [.product(name: "SharedDevice", package: "notify-center")]),
        .testTarget(
            name: "NotesTests",
            dependencies: ["notes", .product(name: "SharedDeviceTestKit", package: "notify-center")]
        ),
    ]
)
