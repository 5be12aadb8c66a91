/// The protocol between controller and command. Requests and responses are dictionaries, so that both can be extended.
package enum FleetProtocol {
    package static let busName = "org.notifycenter.SharedDeviceFleet1"
    package static let path = "/org/notifycenter/SharedDeviceFleet"
    package static let interface = "org.notifycenter.SharedDeviceFleet1"

    package enum Failure: String, Sendable {
        case notPermitted = "not_permitted"
        case invalidRequest = "invalid_request"
        case failed

        package var name: String { "\(interface).Error.\(rawValue)" }
    }

    package enum Method: String, Sendable, CaseIterable {
        /// `all`, `devices` or `group`; `session`, `reason` → `order`, `isConnected`.
        case signOut = "SignOut"
        /// `order` (default: the last), `revision`, `wait` → `order`, `revision`, `counts`, `undone`: the pending
        /// devices, the worst first; `refusal`: why the MQTT server rejects the order. `names`: as in `GetOrders`.
        case getOrder = "GetOrder"
        /// `limit` → `orders`, the newest first: `count` of the devices, and in `devices` the devices that the order
        /// still names; without `devices` if `names` is false.
        case getOrders = "GetOrders"
        /// `after`: a name; `limit` → `devices` in the order of their names, and the state of the controller. With
        /// `order`, each device that it targets has a `state`. With `changedAfter`, a revision, only devices that have
        /// changed since; `wait` waits for a change. If a device was forgotten since, the response has all devices and
        /// sets `isWhole`. As in `GetOrder`: `certificateEnd` of the controller; `devicesCertificateEnd`, the next end
        /// among the listed devices; `certificatesEnding`, how many end soon or have ended; and `warning`, a text.
        case getDevices = "GetDevices"
        /// `device`; `order` → the fields of `GetDevices`, and `rounds`: each like the response of the device's broker
        /// to `GetRound`, as far as the device has reported it.
        case getDevice = "GetDevice"
        /// `devices`; `groups` to list them, or none to remove them from the list.
        case listDevices = "ListDevices"
    }

    /// The most devices in one request.
    package static let mostNamed = 10_000
    /// The most devices in one response.
    package static let mostDevices = 1000
    /// The longest `wait` of a request, in seconds.
    package static let longestWait = 60.0
}
