import Fleet
import FleetStage
import Foundation
import MQTTClient
import Testing

// Messages and clients of a stage's fleet, honest or hostile.

extension MQTTMessage {
    /// A retained message with this content.
    static func fleet(_ topic: FleetTopic, _ content: FleetMessage) -> MQTTMessage {
        let event = FleetEvent(content, source: "/test", identifier: "1", time: Date().timeIntervalSince1970)
        return fleet(topic, bytes: event.bytes)
    }

    /// A retained message with these bytes.
    static func fleet(_ topic: FleetTopic, bytes: [UInt8]) -> MQTTMessage {
        let text = FleetTopics(fleet: FleetStage.fleet)?.text(topic) ?? ""
        return MQTTMessage(topic: text, payload: bytes, isRetained: true)
    }

    /// A report of a device without a session that has seen this order, or none if it is 0.
    static func report(of device: String, seen: UInt64, sequence: UInt64) -> MQTTMessage {
        var report = DeviceReport()
        (report.mode, report.sequence) = ("shared", sequence)
        report.seen = .init(all: seen, own: seen)
        if seen > 0 { report.result = .init(order: seen, outcome: .nobody, ended: 7) }
        return fleet(.reported(device: device), .reported(report))
    }
}

extension FleetStage {
    /// A connected client with the subscriptions of a device.
    func device(_ name: String) async throws -> Client {
        try await connected(name, to: try #require(FleetTopics(fleet: Self.fleet)).forDevice(name))
    }
}

extension FleetStage.Client {
    private var contents: [FleetMessage] { messages.compactMap { try? FleetEvent(parsing: $0.payload).message } }
    var orders: [FleetOrder] { contents.compactMap { if case .desired(let order) = $0 { order } else { nil } } }
    var reports: [DeviceReport] { contents.compactMap { if case .reported(let report) = $0 { report } else { nil } } }
}
