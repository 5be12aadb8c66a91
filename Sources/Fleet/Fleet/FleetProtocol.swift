/// What the controller and the command say to each other: the D-Bus service `org.notifycenter.SharedDeviceFleet1`. Requests and answers are
/// dictionaries, so that both can grow.
package enum FleetProtocol {
    package static let busName = "org.notifycenter.SharedDeviceFleet1"
    package static let path = "/org/notifycenter/SharedDeviceFleet"
    package static let interface = "org.notifycenter.SharedDeviceFleet1"

    /// The names of errors.
    package enum Failure: String, Sendable {
        case notPermitted = "not_permitted"
        case invalidRequest = "invalid_request"
        case failed

        package var name: String { "\(interface).Error.\(rawValue)" }
    }

    package enum Method: String, Sendable, CaseIterable {
        /// `all`, `devices` or `group`; `session`, `reason` → `order`, `isConnected`.
        case signOut = "SignOut"
        /// `order` (the last one), `revision`, `wait` → `order`, `revision`, `counts`, `undone` of the devices, the worst first; `refusal`: why the MQTT
        /// server does not take it. `names`: as of `GetOrders`.
        case getOrder = "GetOrder"
        /// `limit` → `orders`, the newest first: `count` of the devices, and those of `devices` that the order still names; without `devices` where
        /// `names` is false.
        case getOrders = "GetOrders"
        /// `after`: a name; `limit` → `devices` in the order of their names, and how the controller is. With `order` each of them that it is for says
        /// its `state`. With `changedAfter`, a revision, only those that have changed since; `wait` waits for a change. Where a device was forgotten
        /// since, all of them come, and `isWhole` says so. As in `GetOrder`: `certificateEnd` of the controller, `devicesCertificateEnd`, the first
        /// end to come of the listed devices', `certificatesEnding`, how many of these end soon or have ended, and `warning`, in words.
        case getDevices = "GetDevices"
        /// `device`; `order` → what `GetDevices` says of it, and its `rounds`: each as the device's broker answers to its own `GetRound`, as far as the
        /// device has reported it.
        case getDevice = "GetDevice"
        /// `devices`; `groups` to list them, none to take them off the list.
        case listDevices = "ListDevices"
    }

    /// The most devices in one request.
    package static let mostNamed = 10_000
    /// The most devices in one answer.
    package static let mostDevices = 1000
    /// The longest that a question may stay open, in seconds.
    package static let longestWait = 60.0
}
