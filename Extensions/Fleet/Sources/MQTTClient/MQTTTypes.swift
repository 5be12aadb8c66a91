package struct MQTTMessage: Sendable, Hashable {
    package let topic: String
    package let payload: [UInt8]
    /// Whether the server keeps the message for later subscribers. For a received message: whether it was kept.
    package let isRetained: Bool
    /// Whether the server must acknowledge it (QoS 1).
    package let isAcknowledged: Bool
    package let contentType: String?

    package init(
        topic: String,
        payload: [UInt8],
        isRetained: Bool = false,
        isAcknowledged: Bool = true,
        contentType: String? = nil
    ) {
        (self.topic, self.payload, self.isRetained) = (topic, payload, isRetained)
        (self.isAcknowledged, self.contentType) = (isAcknowledged, contentType)
    }
}

/// The address of a server and the settings of this client.
package struct MQTTOptions: Sendable {
    /// The files of a TLS connection, read again for each connection.
    package struct Certificates: Sendable, Hashable {
        /// The only authority that the server's certificate may be from.
        package let authority: String
        package let certificate: String
        package let key: String

        package init(authority: String, certificate: String, key: String) {
            (self.authority, self.certificate, self.key) = (authority, certificate, key)
        }
    }

    package let host: String
    package let port: UInt16
    package let clientIdentifier: String
    /// `nil` for a connection without TLS, as in benchmarks.
    package var certificates: Certificates?
    /// The message that the server publishes when this client disappears.
    package var will: MQTTMessage?
    /// The delay of the will, in seconds.
    package var willDelay: UInt32 = 60
    /// How long the server keeps the session after a disconnect, in seconds.
    package var sessionExpiry: UInt32 = 120
    /// The seconds without a packet after which either side considers the other gone.
    package var keepAlive: CInt = 60
    /// The most messages in flight from the server.
    package var receiveMaximum: UInt16 = 20
    /// The largest packet that the server may send, in bytes. A larger one is discarded and ends the connection.
    package var largestPacket: UInt32 = 64 << 10
    /// The socket's receive buffer in bytes; `nil` for the system's default. A smaller one detects an oversized packet
    /// sooner. A larger one receives many messages faster over a slow network.
    package var receiveBuffer: CInt? = 64 << 10
    /// The most unacknowledged messages of this client, and their bytes.
    package var capacity = (messages: 1000, bytes: 16 << 20)
    /// Called before each connection. Returns the reason why connecting is not allowed now, or `nil`. May read files.
    package var objection: @Sendable () -> String? = { nil }
    /// The upper bound of the first wait before a reconnection.
    package var firstDelay = Duration.seconds(1)

    package init(host: String, port: UInt16, clientIdentifier: String, certificates: Certificates?) {
        (self.host, self.port, self.clientIdentifier) = (host, port, clientIdentifier)
        self.certificates = certificates
    }
}

/// An event, delivered in order on the client's thread.
package enum MQTTEvent: Sendable {
    /// The server has accepted this client. Subscriptions and messages of the previous connection are gone.
    case connected
    /// The connection was lost or could not be made. The client retries by itself.
    case lost(MQTTError)
    case message(MQTTMessage)
    /// There is room for messages again after `publish` threw `full`.
    case hasRoom
    /// The server has acknowledged a message on this topic.
    case accepted(topic: String)
    /// The server rejected a subscription, or a message on the error's topic.
    case refused(MQTTError)
}

/// The reason why an operation failed.
package struct MQTTError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Reason: Sendable, Hashable {
        /// No connection; the text is from libmosquitto or the system.
        case unreachable(String)
        /// One side could not authenticate itself.
        case untrusted(String)
        /// ``MQTTOptions/objection`` returned this reason.
        case objection(String)
        /// The server responded with this reason code of MQTT 5.
        case refused(code: CInt)
        /// The server exceeded ``MQTTOptions/largestPacket``.
        case tooMuch
        case lost(String)
        /// The capacity for unacknowledged messages is used up.
        case full
        case notConnected
        case noResources(String)
    }

    package let reason: Reason
    package let attempted: String
    /// The topic of the rejected message.
    package let topic: String?

    package init(_ reason: Reason, attempted: String, topic: String? = nil) {
        (self.reason, self.attempted, self.topic) = (reason, attempted, topic)
    }

    /// The attempt, the cause and the remedy.
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
        case .tooMuch:
            "the server sent a packet that is larger than any message of a fleet; check that it is the right server"
        case .lost(let text): "the connection was lost (\(text)); the client connects again"
        case .full: "too many messages wait for the server's acknowledgement; continue when there is room"
        case .notConnected: "there is no connection; the client connects again"
        case .noResources(let text): "the system has no room (\(text)); raise its limits"
        }
    }
}
