import Foundation
import NotifyCenterTestKit
import SharedDeviceTestKit

enum ExampleApps {
    static let names = ["point-of-sale", "flight-briefing", "field-service"]

    static func identifier(_ name: String) -> String { "org.notifycenter.example.\(name)" }

    static func app(_ name: String) -> TestApp {
        TestApp(
            identifier(name),
            executable: TestApp.built(name),
            arguments: ["--stay", "--bus", "{bus}", "--data", "{data}"]
        )
    }

    /// A device with this app, which holds data of Ada, who is signed in.
    static func deviceAtWork(_ name: String, users: [String] = ["ada"]) async throws -> (TestDevice, DeviceApp) {
        let device = try await TestDevice(apps: [app(name)], users: users)
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        let app = try device.app(identifier(name))
        try await app.work()
        return (device, app)
    }
}

extension DeviceApp {
    /// Makes the app write data of the signed-in user, and waits until the data is there.
    func work(_ marker: Marker = "Ada <ada>") async throws {
        // The app works only after its screen shows the user.
        try await line { $0.contains("signed in: \(marker.text.prefix(3))") }
        try write("work")
        try await eventually("\(identifier) holds \(marker.kind)") { try !findings(of: [marker]).isEmpty }
    }
}
