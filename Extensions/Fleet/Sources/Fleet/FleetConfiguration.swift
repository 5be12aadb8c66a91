import Basics

/// The configuration file of an agent or of the controller.
package struct FleetConfiguration: Sendable, Hashable {
    package let topics: FleetTopics
    /// The name in the certificate of the device or controller.
    package let name: String
    package let host: String
    package let port: UInt16
    /// Paths of the authority's certificate, and of the program's certificate and key, in PEM.
    package let authority: String
    package let certificate: String
    package let key: String
    /// On a device: the time limit without contact.
    package let policy: AgentState.Policy

    /// The size limit of a file, in bytes.
    package static let largest = 64 << 10

    private static let keys: Set<String> = [
        "fleet", "name", "host", "port", "authority", "certificate", "key", "contactTimeout", "requiresContact",
    ]

    /// Parses a file. An unknown key is an error, because otherwise a misspelt one would silently have no effect.
    package init(parsing bytes: [UInt8]) throws(FleetRefusal) {
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONValue(parsing: bytes, limits: JSONLimits(size: Self.largest, depth: 2, values: 100))
        } catch {
            throw FleetRefusal("it is no JSON: \(error); correct it")
        }
        guard let members = json.object else { throw FleetRefusal("it is no JSON object; write {…}") }
        if let unknown = members.keys.filter({ !Self.keys.contains($0) }).min() {
            throw FleetRefusal("\(unknown.quoted) is no key; remove it, or see Documentation/Fleet.md")
        }
        let text = { (key: String) throws(FleetRefusal) -> String in
            guard let text = members[key]?.string, !text.isEmpty, !text.utf8.contains(0) else {
                throw FleetRefusal("“\(key)” is no text; write one")
            }
            return text
        }
        guard let topics = FleetTopics(fleet: try text("fleet")), FleetTopics.isName(try text("name")) else {
            throw FleetRefusal("“fleet” and “name” have up to 64 small letters, digits and dashes; write such names")
        }
        self.topics = topics
        name = try text("name")
        host = try text("host")
        guard let port = UInt16(exactly: members["port"].map { $0.number ?? 0 } ?? 8883), port > 0 else {
            throw FleetRefusal("“port” is no port; write one from 1 to 65535, or leave it out for 8883")
        }
        self.port = port
        authority = try text("authority")
        certificate = try text("certificate")
        key = try text("key")
        var policy = AgentState.Policy()
        if let value = members["contactTimeout"] {
            guard let seconds = value.number, AgentState.Policy.timeouts.contains(seconds) else {
                throw FleetRefusal("“contactTimeout” is no number of seconds from 60 to 31536000; write one")
            }
            policy.contactTimeout = seconds
        }
        if let value = members["requiresContact"] {
            guard let isRequired = value.boolean else { throw FleetRefusal("“requiresContact” is true or false") }
            guard !isRequired || policy.contactTimeout != nil else {
                throw FleetRefusal("“requiresContact” needs “contactTimeout”; write how many seconds count as contact")
            }
            policy.requiresContact = isRequired
        }
        self.policy = policy
    }
}
