/// A message of a topic.
package struct MQTTMessage: Sendable, Hashable {
    package let topic: String
    package let payload: [UInt8]
    /// Whether the server keeps it for those who subscribe later; of a message that arrives, whether it was kept.
    package let isRetained: Bool
    /// Whether the server has to acknowledge it (QoS 1).
    package let isAcknowledged: Bool
    /// The media type of the payload.
    package let contentType: String?

    package init(
        topic: String,
        payload: [UInt8],
        isRetained: Bool = false,
        isAcknowledged: Bool = true,
        contentType: String? = nil
    ) {
        self.topic = topic
        self.payload = payload
        self.isRetained = isRetained
        self.isAcknowledged = isAcknowledged
        self.contentType = contentType
    }
}

/// Where a server is, and how this client presents itself.
package struct MQTTOptions: Sendable {
    /// The files of a TLS connection, each read anew for each connection.
    package struct Certificates: Sendable, Hashable {
        /// The authority that vouches for the server; no other does.
        package let authority: String
        package let certificate: String
        package let key: String

        package init(authority: String, certificate: String, key: String) {
            self.authority = authority
            self.certificate = certificate
            self.key = key
        }
    }

    package let host: String
    package let port: UInt16
    package let clientIdentifier: String
    /// `nil` for a connection without TLS, as the tests of speed have it.
    package var certificates: Certificates?
    /// What the server publishes when this client is gone without a word.
    package var will: MQTTMessage?
    /// How long the server waits with the will, in seconds.
    package var willDelay: UInt32 = 60
    /// How long the server keeps the session of a client that is gone, in seconds.
    package var sessionExpiry: UInt32 = 120
    /// Seconds without a packet after which either side takes the other for gone.
    package var keepAlive: CInt = 60
    /// How many messages the server may have under way to this client.
    package var receiveMaximum: UInt16 = 20
    /// The largest packet that the server may send, in bytes; of a larger one nothing is kept, and the connection ends.
    package var largestPacket: UInt32 = 64 << 10
    /// How much the system keeps of what the server has sent and nobody has read, in bytes; `nil` for the system's choice. The less it is, the sooner a
    /// packet is noticed that is too large; the more, the faster many messages arrive over a slow network.
    package var receiveBuffer: CInt? = 64 << 10
    /// How many messages of this client wait for the server's acknowledgement, and how many bytes they have.
    package var capacity = (messages: 1000, bytes: 16 << 20)
    /// Asked before each connection: why there must be none now, with what helps; `nil` where nothing speaks against it. It may read files.
    package var objection: @Sendable () -> String? = { nil }
    /// The first wait before a new attempt is up to so long.
    package var firstDelay = Duration.seconds(1)

    package init(host: String, port: UInt16, clientIdentifier: String, certificates: Certificates?) {
        self.host = host
        self.port = port
        self.clientIdentifier = clientIdentifier
        self.certificates = certificates
    }
}

/// What a client tells its owner, on its thread and in this order.
package enum MQTTEvent: Sendable {
    /// The server has accepted this client. Subscriptions and messages of an earlier connection are forgotten.
    case connected
    /// The connection was lost, or there is none. The client tries again by itself.
    case lost(MQTTError)
    case message(MQTTMessage)
    /// There is room again for messages, after `publish` threw `full`.
    case hasRoom
    /// The server has acknowledged a message of this topic.
    case accepted(topic: String)
    /// The server did not take a message of this client's, whose topic the error then names, or a subscription.
    case refused(MQTTError)
}

/// Why the server does not do what was asked.
package struct MQTTError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Reason: Sendable, Hashable {
        /// No connection, in libmosquitto's words or the system's.
        case unreachable(String)
        /// One of the two sides could not prove who it is.
        case untrusted(String)
        /// ``MQTTOptions/objection`` has one.
        case objection(String)
        /// The server answered with this reason code of MQTT 5.
        case refused(code: CInt)
        /// The server sent more than ``MQTTOptions/largestPacket`` at once.
        case tooMuch
        /// The connection ended.
        case lost(String)
        /// There are as many unacknowledged messages as may be.
        case full
        /// There is no connection at the moment.
        case notConnected
        /// The system grants no thread or no memory.
        case noResources(String)
    }

    package let reason: Reason
    package let attempted: String
    /// That of the message that was refused.
    package let topic: String?

    package init(_ reason: Reason, attempted: String, topic: String? = nil) {
        self.reason = reason
        self.attempted = attempted
        self.topic = topic
    }

    /// What was attempted, what happened, and what helps.
    package var description: String { "\(attempted): \(reasonText)" }

    private var reasonText: String {
        switch reason {
        case .unreachable(let text): "no connection (\(text)); check the network, the name and the port"
        case .untrusted(let text):
            "TLS failed (\(text)); check the files of authority, certificate and key, their dates, and whether the server "
                + "has revoked the certificate"
        case .objection(let text): text
        case .refused(0x87): "the server does not permit it; check its access list"
        case .refused(let code): "the server refuses it (reason 0x\(String(code, radix: 16))); see the server's log"
        case .tooMuch: "the server sent a packet that is larger than any of a fleet's; see whose server it is"
        case .lost(let text): "the connection was lost (\(text)); it is made anew"
        case .full: "too many messages wait for the server's acknowledgement; go on when there is room"
        case .notConnected: "there is no connection; it is made anew"
        case .noResources(let text): "the system has no room (\(text)); raise its limits"
        }
    }
}
