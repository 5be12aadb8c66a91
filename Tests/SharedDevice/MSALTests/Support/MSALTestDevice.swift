import MSAL
import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice

extension DeviceOnPrivateBus {
    /// An app of this device that uses MSAL; the same name is the same app after a restart.
    func msalApplication(
        _ name: String = "app",
        configure: (MSALPublicClientApplicationConfig) -> Void = { _ in }
    ) throws -> MSALPublicClientApplication {
        let configuration = MSALPublicClientApplicationConfig(clientId: "org.example.\(name)")
        configure(configuration)
        return try MSALPublicClientApplication(
            configuration: configuration,
            bus: bus.bus,
            stateDirectory: "\(directory.path)/apps/\(name)"
        )
    }

    /// Runs `body` in a process of the app that then ends. On return the broker has seen the end: until then it assumes
    /// that the process may store data.
    func endedApplication<Value>(
        configure: (MSALPublicClientApplicationConfig) -> Void = { _ in },
        _ body: (MSALPublicClientApplication) async throws -> Value
    ) async throws -> Value {
        var application: MSALPublicClientApplication? = try msalApplication(configure: configure)
        let value = try await body(application!)
        application = nil
        try await eventually("the app's process has ended") { try await !isRunning("org.example.app") }
        return value
    }
}

extension ControlApp {
    var current: String? { get async throws { try await application.getCurrentAccount().current?.username } }
}
