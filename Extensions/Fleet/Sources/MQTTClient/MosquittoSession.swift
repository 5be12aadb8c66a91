import CMosquitto
import Glibc

/// One connection of libmosquitto, for use on one thread. Callbacks collect occurrences, which are returned after the
/// library call, so that handlers never run inside the library.
final class MosquittoSession {
    enum Occurrence {
        case event(MQTTEvent)
        /// A message of this size was acknowledged or given up.
        case settled(bytes: Int)
        case ended(MQTTError)
    }

    /// The target of the callbacks. The library holds its address.
    private final class Callbacks {
        let server: String
        /// The largest packet, in bytes.
        let limit: Int
        var occurrences: [Occurrence] = []
        /// The bytes of messages among the occurrences.
        var bytes = 0
        var isAccepted = false
        /// The library's last log line about a failure.
        var complaint: String?
        /// Whether the log line is an OpenSSL alert about a certificate, such as “… alert unknown ca”.
        var isCertificateRefused: Bool {
            guard let complaint, complaint.contains(" alert ") else { return false }
            return complaint.contains("certificate") || complaint.contains("unknown ca")
        }
        /// The unacknowledged messages by number, with topic and bytes.
        var published: [CInt: (topic: String, bytes: Int)] = [:]
        /// The numbers of unacknowledged subscriptions, at most 65535.
        var subscribed: Set<CInt> = []

        init(server: String, limit: Int) { (self.server, self.limit) = (server, limit) }

        var tooMuch: MQTTError { MQTTError(.tooMuch, attempted: "stay connected to \(server)") }

        static func at(_ address: UnsafeMutableRawPointer?) -> Callbacks? {
            address.map { Unmanaged<Callbacks>.fromOpaque($0).takeUnretainedValue() }
        }
    }

    /// Initialises the library once for the process, without cleanup.
    private static let isLibraryReady = mosquitto_lib_init() == MOSQ_ERR_SUCCESS.rawValue

    /// The most packets, message bytes and occurrences to read before they are handed on.
    private static let (packetsAtOnce, bytesAtOnce, occurrencesAtOnce) = (64, 256 << 10, 256)
    /// The bytes of TLS and of ping responses that may be read without an occurrence, besides the largest packet.
    private static let slack: UInt64 = 1 << 20

    private let handle: OpaquePointer
    private let callbacks: Callbacks
    /// Whether the last packet read caused an occurrence.
    private var mayHaveMore = false
    /// The bytes read from the socket up to the last packet that caused an occurrence.
    private var readBefore: UInt64 = 0

    /// Connects; the server's acceptance is an event. Blocks for the name lookup and the TCP connection.
    init(_ options: MQTTOptions) throws(MQTTError) {
        callbacks = Callbacks(server: "\(options.host):\(options.port)", limit: Int(options.largestPacket))
        let attempted = "connect to \(callbacks.server)"
        if let objection = options.objection() { throw MQTTError(.objection(objection), attempted: attempted) }
        guard Self.isLibraryReady,
            let handle = mosquitto_new(options.clientIdentifier, true, Unmanaged.passUnretained(callbacks).toOpaque())
        else { throw MQTTError(.noResources("libmosquitto does not start"), attempted: attempted) }
        self.handle = handle
        setCallbacks()
        mosquitto_int_option(handle, MOSQ_OPT_PROTOCOL_VERSION, CInt(MQTT_PROTOCOL_V5))
        mosquitto_int_option(handle, MOSQ_OPT_TCP_NODELAY, 1)
        try check(setCertificates(options.certificates), attempted)
        try check(setWill(options), attempted)
        var properties: OpaquePointer?
        defer { mosquitto_property_free_all(&properties) }
        mosquitto_property_add_int32(
            &properties,
            CInt(MQTT_PROP_SESSION_EXPIRY_INTERVAL.rawValue),
            options.sessionExpiry
        )
        mosquitto_property_add_int16(&properties, CInt(MQTT_PROP_RECEIVE_MAXIMUM.rawValue), options.receiveMaximum)
        mosquitto_property_add_int32(&properties, CInt(MQTT_PROP_MAXIMUM_PACKET_SIZE.rawValue), options.largestPacket)
        try check(
            mosquitto_connect_bind_v5(handle, options.host, CInt(options.port), options.keepAlive, nil, properties),
            attempted
        )
        if var size = options.receiveBuffer {
            setsockopt(mosquitto_socket(handle), SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<CInt>.size))
        }
    }

    deinit { mosquitto_destroy(handle) }

    var isAccepted: Bool { callbacks.isAccepted }

    func takeOccurrences() -> [Occurrence] {
        defer { (callbacks.occurrences, callbacks.bytes) = ([], 0) }
        return callbacks.occurrences
    }

    // MARK: Set-up

    private func setCertificates(_ certificates: MQTTOptions.Certificates?) -> CInt {
        guard let certificates else { return 0 }
        // Without a file the library would trust the system's authorities, or none.
        let result = mosquitto_tls_set(
            handle,
            certificates.authority,
            nil,
            certificates.certificate,
            certificates.key,
            // Keys with a passphrase are not supported. Without this callback OpenSSL would prompt on the terminal.
            { buffer, size, _, _ in
                if let buffer, size > 0 { buffer.pointee = 0 }
                return 0
            }
        )
        guard result == 0 else { return result }
        // 1 verifies the server's certificate. The library checks the host name by default.
        return mosquitto_tls_opts_set(handle, 1, "tlsv1.2", nil)
    }

    private func setWill(_ options: MQTTOptions) -> CInt {
        guard let will = options.will else { return 0 }
        var properties: OpaquePointer?
        mosquitto_property_add_int32(&properties, CInt(MQTT_PROP_WILL_DELAY_INTERVAL.rawValue), options.willDelay)
        if let type = will.contentType {
            mosquitto_property_add_string(&properties, CInt(MQTT_PROP_CONTENT_TYPE.rawValue), type)
        }
        let result = mosquitto_will_set_v5(
            handle,
            will.topic,
            CInt(will.payload.count),
            will.payload,
            will.isAcknowledged ? 1 : 0,
            will.isRetained,
            properties
        )
        // On success the library owns the properties.
        if result != 0 { mosquitto_property_free_all(&properties) }
        return result
    }

    private func setCallbacks() {
        mosquitto_connect_v5_callback_set(handle) { _, address, code, _, _ in
            guard let callbacks = Callbacks.at(address) else { return }
            callbacks.isAccepted = code == 0
            let refusal = MQTTError(.refused(code: code), attempted: "connect to \(callbacks.server)")
            callbacks.occurrences.append(code == 0 ? .event(.connected) : .ended(refusal))
        }
        mosquitto_message_v5_callback_set(handle) { _, address, message, _ in
            guard let callbacks = Callbacks.at(address), let message = message?.pointee, let topic = message.topic
            else { return }
            guard Int(message.payloadlen) <= callbacks.limit else {
                callbacks.occurrences.append(.ended(callbacks.tooMuch))
                return
            }
            callbacks.bytes += Int(message.payloadlen)
            let payload = UnsafeRawBufferPointer(start: message.payload, count: Int(message.payloadlen))
            let received = MQTTMessage(
                topic: String(cString: topic),
                payload: Array(payload),
                isRetained: message.retain,
                isAcknowledged: message.qos > 0
            )
            callbacks.occurrences.append(.event(.message(received)))
        }
        mosquitto_publish_v5_callback_set(handle) { _, address, number, code, _ in
            guard let callbacks = Callbacks.at(address), let entry = callbacks.published.removeValue(forKey: number)
            else { return }
            callbacks.occurrences.append(.settled(bytes: entry.bytes))
            // 0x10 only says that there are no subscribers.
            guard code >= 0x80 else { return callbacks.occurrences.append(.event(.accepted(topic: entry.topic))) }
            let refusal = MQTTError(.refused(code: code), attempted: "publish to \(entry.topic)", topic: entry.topic)
            callbacks.occurrences.append(.event(.refused(refusal)))
        }
        mosquitto_subscribe_v5_callback_set(handle) { _, address, number, count, codes, _ in
            // The server's data is untrusted: an acknowledgement may have an unknown number or any count of codes.
            guard let callbacks = Callbacks.at(address), callbacks.subscribed.remove(number) != nil, let codes,
                let code = UnsafeBufferPointer(start: codes, count: Int(count)).first(where: { $0 >= 0x80 })
            else { return }
            let refusal = MQTTError(.refused(code: code), attempted: "subscribe at \(callbacks.server)")
            callbacks.occurrences.append(.event(.refused(refusal)))
        }
        mosquitto_disconnect_v5_callback_set(handle) { _, address, code, _ in
            guard let callbacks = Callbacks.at(address), code >= 0x80 else { return }
            let refusal = MQTTError(.refused(code: code), attempted: "stay connected to \(callbacks.server)")
            callbacks.occurrences.append(.ended(refusal))
        }
        mosquitto_log_callback_set(handle) { _, address, level, text in
            guard let text, level == MOSQ_LOG_ERR else { return }
            Callbacks.at(address)?.complaint = String(cString: text)
        }
    }

    // MARK: Work

    func publish(_ message: MQTTMessage, bytes: Int) throws(MQTTError) {
        var properties: OpaquePointer?
        defer { mosquitto_property_free_all(&properties) }
        if let type = message.contentType {
            mosquitto_property_add_string(&properties, CInt(MQTT_PROP_CONTENT_TYPE.rawValue), type)
        }
        var number: CInt = 0
        let result = mosquitto_publish_v5(
            handle,
            &number,
            message.topic,
            CInt(message.payload.count),
            message.payload,
            message.isAcknowledged ? 1 : 0,
            message.isRetained,
            properties
        )
        try check(result, "publish to \(message.topic)", topic: message.topic)
        // Messages of QoS 0 are settled here. Their publish callback may come before this call returns.
        if message.isAcknowledged {
            callbacks.published[number] = (message.topic, bytes)
        } else {
            callbacks.occurrences.append(.settled(bytes: bytes))
        }
    }

    func subscribe(to topics: [String], isAcknowledged: Bool) throws(MQTTError) {
        for topic in topics {
            var number: CInt = 0
            try check(
                mosquitto_subscribe_v5(handle, &number, topic, isAcknowledged ? 1 : 0, 0, nil),
                "subscribe to \(topic)"
            )
            callbacks.subscribed.insert(number)
        }
    }

    func unsubscribe(from topics: [String]) throws(MQTTError) {
        for topic in topics {
            try check(mosquitto_unsubscribe_v5(handle, nil, topic, nil), "unsubscribe from \(topic)")
        }
    }

    func disconnect() {
        mosquitto_disconnect_v5(handle, 0, nil)
        // Data that the socket does not take now is lost. The server then publishes the will, which says the same.
        while mosquitto_want_write(handle), mosquitto_loop_write(handle, 1) == 0 {}
    }

    /// Waits for the server or the event, and handles packets. Returns the reason if the connection has ended.
    func wait(for event: CInt, milliseconds: CInt) -> MQTTError? {
        let socket = mosquitto_socket(handle)
        guard socket >= 0 else { return ended(MOSQ_ERR_CONN_LOST.rawValue) }
        let wants = Int16(POLLIN) | (mosquitto_want_write(handle) ? Int16(POLLOUT) : 0)
        let ready = Self.wait(for: event, socket: socket, wants, milliseconds: mayHaveMore ? 0 : milliseconds)
        var result = MOSQ_ERR_SUCCESS.rawValue
        if mayHaveMore || ready & Int16(POLLIN | POLLHUP | POLLERR) != 0 { result = read() }
        if result == 0, mosquitto_want_write(handle) { result = mosquitto_loop_write(handle, 1) }
        if result == 0 { result = mosquitto_loop_misc(handle) }
        return result == 0 || callbacks.occurrences.contains(where: \.isEnd) ? nil : ended(result)
    }

    /// Reads packets while they cause occurrences. The library usually reads one packet per call, but several small
    /// ones at once. `poll` does not report packets that TLS has already taken from the socket.
    private func read() -> CInt {
        for _ in 0..<Self.packetsAtOnce
        where callbacks.bytes < Self.bytesAtOnce && callbacks.occurrences.count < Self.occurrencesAtOnce {
            let known = callbacks.occurrences.count
            let result = mosquitto_loop_read(handle, 1)
            mayHaveMore = callbacks.occurrences.count > known
            if result == 0, isTooMuch(afterPacket: mayHaveMore) {
                callbacks.occurrences.append(.ended(callbacks.tooMuch))
            }
            if result != 0 || !mayHaveMore { return result }
        }
        return 0
    }

    /// Checks whether the server exceeds the largest packet. The library accepts any length up to 256 MB and allocates
    /// the memory for it. So this counts the bytes that were read since the last complete packet.
    private func isTooMuch(afterPacket: Bool) -> Bool {
        // `tcpi_bytes_received` of Linux's `tcp_info`. The declaration in glibc ends before this field.
        let (option, offset, socket) = (CInt(11), 128, mosquitto_socket(handle))
        var info = [UInt8](repeating: 0, count: 256)
        var length = socklen_t(info.count)
        guard getsockopt(socket, CInt(IPPROTO_TCP), option, &info, &length) == 0, Int(length) >= offset + 8 else {
            return false
        }
        let received = info.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: UInt64.self) }
        // Queried second: bytes that arrive in between count as unread.
        var unread: CInt = 0
        guard ioctl(socket, UInt(FIONREAD), &unread) == 0 else { return false }
        let read = received - min(received, UInt64(max(0, unread)))
        if afterPacket { readBefore = max(read, readBefore) }
        return read > readBefore + UInt64(callbacks.limit) + Self.slack
    }

    /// Waits until the event is signalled or the socket is ready. Returns the socket's events; 0 if there are none.
    @discardableResult
    static func wait(for event: CInt, socket: CInt = -1, _ wants: Int16 = 0, milliseconds: CInt) -> Int16 {
        var watched = [
            pollfd(fd: event, events: Int16(POLLIN), revents: 0), pollfd(fd: socket, events: wants, revents: 0),
        ]
        return poll(&watched, nfds_t(watched.count), milliseconds) > 0 ? watched[1].revents : 0
    }

    // MARK: Failures

    private func check(_ result: CInt, _ attempted: String, topic: String? = nil) throws(MQTTError) {
        if result != 0 { throw failure(result, attempted, topic: topic) }
    }

    private func ended(_ result: CInt) -> MQTTError { failure(result, "stay connected to \(callbacks.server)") }

    private func failure(_ result: CInt, _ attempted: String, topic: String? = nil) -> MQTTError {
        let number = errno
        let words =
            result == MOSQ_ERR_ERRNO.rawValue
            ? String(cString: strerror(number)) : String(cString: mosquitto_strerror(result))
        let text = callbacks.complaint.map { "\(words): \($0)" } ?? words
        let reason: MQTTError.Reason =
            switch mosq_err_t(result) {
            // With TLS 1.3 the server checks the certificate after this side has finished the handshake, so its alert
            // looks like a lost connection. If this side is still writing, the library reports EPROTO, as for any TLS
            // failure, and reads no alert.
            case _ where callbacks.isCertificateRefused: .untrusted(text)
            case MOSQ_ERR_ERRNO where number == EPROTO && !callbacks.isAccepted: .untrusted(text)
            case MOSQ_ERR_TLS, MOSQ_ERR_TLS_HANDSHAKE: .untrusted(text)
            case MOSQ_ERR_NOMEM: .noResources(text)
            case MOSQ_ERR_NO_CONN: .notConnected
            case MOSQ_ERR_CONN_LOST, MOSQ_ERR_KEEPALIVE: .lost(text)
            // The library has no separate code for an unreadable certificate file.
            case MOSQ_ERR_INVAL: .untrusted(text)
            default: .unreachable(text)
            }
        return MQTTError(reason, attempted: attempted, topic: topic)
    }
}

extension MosquittoSession.Occurrence {
    fileprivate var isEnd: Bool { if case .ended = self { true } else { false } }
}
