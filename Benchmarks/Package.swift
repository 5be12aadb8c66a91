// swift-tools-version:6.2

import PackageDescription

// A separate package, so that dependencies of the benchmarks stay out of the product's dependency graph.
let package = Package(
    name: "notify-center-benchmarks",
    dependencies: [
        .package(name: "notify-center", path: ".."),
        // The driver's command line. The product's programs use the same version.
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    ],
    targets: [
        // Starts the bus and the peers, alternates them, and prints the table. It links no measured code.
        .executableTarget(
            name: "bench",
            dependencies: [.product(name: "ArgumentParser", package: "swift-argument-parser")]
        ),
        // The counterpart of the C programs in Peers.
        .executableTarget(
            name: "swift-peer",
            dependencies: [.product(name: "NotifyCenter", package: "notify-center")]
        ),
        // An app on a shared device.
        .executableTarget(
            name: "shared-peer",
            dependencies: [
                .product(name: "SharedDevice", package: "notify-center"),
                .product(name: "NotifyCenter", package: "notify-center"),
            ]
        ),
        .testTarget(name: "BenchTests", dependencies: ["bench"]),
    ],
    swiftLanguageModes: [.v6]
)

for target in package.targets {
    target.swiftSettings =
        (target.swiftSettings ?? []) + [
            .enableUpcomingFeature("ExistentialAny"),
            .enableUpcomingFeature("MemberImportVisibility"),
            .enableUpcomingFeature("InternalImportsByDefault"),
            .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
        ]
}
