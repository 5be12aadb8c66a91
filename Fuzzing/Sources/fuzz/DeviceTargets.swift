import DeviceConfiguration
import Fleet
import FoundationEssentials
import NotifyCenter

/// A manifest, the broker's and the agent's configuration, and notifyd's. Errors are formatted too: they quote the
/// file.
@Sendable func fuzzConfiguration(_ input: [UInt8]) {
    let data = Data(input)
    do throws(ManagedConfigurationError) {
        _ = try AppManifest(json: data, file: "app.json")
    } catch {
        _ = "\(error)"
    }
    do throws(ManagedConfigurationError) {
        _ = try ManagedConfiguration(json: data, file: "configuration.json")
    } catch {
        _ = "\(error)"
    }
    _ = try? FleetConfiguration(parsing: input)
    _ = ConfigurationParser.parse(input)
}

/// A profile for iOS. The result of its conversion must be a valid configuration.
@Sendable func fuzzProfiles(_ input: [UInt8]) {
    do throws(ManagedConfigurationError) {
        let profile = try ConvertedProfile(Data(input), file: "device.mobileconfig")
        precondition((try? ManagedConfiguration(json: profile.json, file: "configuration.json")) != nil)
    } catch {
        _ = "\(error)"
    }
}

/// A message of a fleet, and a topic. An encoded message must decode to an equal message.
@Sendable func fuzzFleet(_ input: [UInt8]) {
    if let topics = FleetTopics(fleet: "shop") {
        let text = String(decoding: input, as: UTF8.self)
        if let topic = topics.topic(text) { precondition(topics.text(topic) == text) }
    }
    guard let event = try? FleetEvent(parsing: input), let again = try? FleetEvent(parsing: event.bytes) else { return }
    precondition(again.message == event.message && again.source == event.source && again.identifier == event.identifier)
}
