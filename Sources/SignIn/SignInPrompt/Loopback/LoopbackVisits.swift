import CLinux
import DBusTransport
import Glibc

/// The connections of a listener. One thread has it.
struct LoopbackVisits {
    private struct Visit {
        enum Phase {
            case asking(LoopbackReader, until: ContinuousClock.Instant)
            /// The prompt decides.
            case waiting
            case answering(ArraySlice<UInt8>, until: ContinuousClock.Instant)
        }

        let descriptor: CInt
        var phase: Phase

        var isAsking: Bool { if case .asking = phase { true } else { false } }

        var deadline: ContinuousClock.Instant? {
            switch phase {
            case .asking(_, let deadline), .answering(_, let deadline): deadline
            case .waiting: nil
            }
        }
    }

    private static let mostVisits = 16
    /// How many connections are taken at a time, so that those of other users leave room for the browser's.
    private static let mostTaken = 64
    /// How long nobody is let in where the system has no descriptor for a connection: the visitor waits, and would have this thread asked all the time.
    private static let shortagePause = Duration.milliseconds(250)

    private var socket: CInt
    private let host: String
    private let patience: Duration
    private let visited: (SignInPrompt.Visitor, LoopbackRequest) -> Void
    private var visits: [UInt64: Visit] = [:]
    private var lastNumber: UInt64 = 0
    private let problem: (String) -> Void
    private var hasToldProblem = false
    private var hasToldShortage = false
    /// Until when nobody is let in.
    private var pausedUntil: ContinuousClock.Instant?

    /// - Parameters:
    ///   - patience: how long a visitor may take to ask, and to take the answer.
    ///   - problem: is told once if the kernel does not say whose connections there are: nobody is served then. And
    ///     once if there is no descriptor for a connection: then visitors wait.
    init(
        socket: CInt,
        host: String,
        patience: Duration,
        visited: @escaping (SignInPrompt.Visitor, LoopbackRequest) -> Void,
        problem: @escaping (String) -> Void
    ) {
        self.socket = socket
        self.host = host
        self.patience = patience
        self.visited = visited
        self.problem = problem
    }

    /// Whether an answer is still on its way.
    var hasReplies: Bool {
        visits.values.contains { if case .answering = $0.phase { true } else { false } }
    }

    /// Waits for whatever comes first, and handles it; returns also when the descriptor is readable.
    mutating func serve(until wake: CInt) {
        let order = visits.keys.sorted()
        if let end = pausedUntil, end <= .now { pausedUntil = nil }
        let door = pausedUntil == nil ? socket : -1
        var looks = [
            pollfd(fd: wake, events: Int16(POLLIN), revents: 0), pollfd(fd: door, events: Int16(POLLIN), revents: 0),
        ]
        looks += order.map { number in
            switch visits[number]?.phase {
            case .asking: pollfd(fd: visits[number]?.descriptor ?? -1, events: Int16(POLLIN), revents: 0)
            case .answering: pollfd(fd: visits[number]?.descriptor ?? -1, events: Int16(POLLOUT), revents: 0)
            // A visitor that waits sends nothing more.
            case .waiting, nil: pollfd(fd: -1, events: 0, revents: 0)
            }
        }
        let deadlines = visits.values.compactMap(\.deadline) + [pausedUntil].compactMap { $0 }
        let wait = deadlines.min().map(milliseconds(until:)) ?? -1
        guard poll(&looks, nfds_t(looks.count), wait) >= 0 else { return }
        for (look, number) in zip(looks.dropFirst(2), order) where look.revents != 0 { proceed(number) }
        endThoseLate()
        if looks[1].revents != 0 { for _ in 0..<Self.mostTaken where !accept() { break } }
    }

    mutating func reply(to visitor: SignInPrompt.Visitor, _ response: LoopbackResponse) {
        answer(visitor.number, response)
    }

    mutating func stopAccepting() {
        guard socket >= 0 else { return }
        // A program that is being started at this moment has a copy of the descriptor, and would keep the port.
        shutdown(socket, CInt(SHUT_RDWR))
        close(socket)
        socket = -1
    }

    mutating func closeAll() {
        stopAccepting()
        for number in visits.keys { end(number) }
    }

    // MARK: One visit

    /// - Returns: whether there was one.
    private mutating func accept() -> Bool {
        let descriptor = Glibc.accept(socket, nil, nil)
        guard descriptor >= 0 else {
            if [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(errno) { pause(String(cString: strerror(errno))) }
            return false
        }
        // Before anything of it is read, and before it takes a place.
        guard isOwn(descriptor) else {
            close(descriptor)
            return true
        }
        // Swift has no accept4. A program that is started in between gets none of our descriptors either (ProgramStart).
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        if visits.count >= Self.mostVisits, let oldest = visits.filter({ $0.value.isAsking }).keys.min() { end(oldest) }
        guard visits.count < Self.mostVisits else {
            close(descriptor)
            return true
        }
        lastNumber += 1
        visits[lastNumber] = Visit(
            descriptor: descriptor,
            phase: .asking(LoopbackReader(host: host), until: .now + patience)
        )
        return true
    }

    private mutating func pause(_ reason: String) {
        pausedUntil = .now + Self.shortagePause
        guard !hasToldShortage else { return }
        hasToldShortage = true
        problem("the page waits until other programs are closed: this one may open nothing more (\(reason))")
    }

    /// Whether a program of this user has connected. Every user of the machine reaches 127.0.0.1, and the browser is this user's.
    private mutating func isOwn(_ descriptor: CInt) -> Bool {
        var user: uid_t = 0
        if CLinux_userOfPeer(descriptor, &user) == 0 { return user == geteuid() }
        // One that hung up at once is nobody's any more.
        if errno != ENOENT, errno != ENOTCONN, !hasToldProblem {
            hasToldProblem = true
            let reason = String(cString: strerror(errno))
            problem(
                "the page is shown to nobody, because the kernel does not say who asks for it (\(reason)); use --method device-code in a terminal"
            )
        }
        return false
    }

    private mutating func proceed(_ number: UInt64) {
        guard let visit = visits[number] else { return }
        switch visit.phase {
        case .asking(let reader, let deadline): read(number, visit.descriptor, reader, deadline)
        case .answering(let rest, let deadline): write(number, visit.descriptor, rest, deadline)
        case .waiting: break
        }
    }

    private mutating func read(
        _ number: UInt64,
        _ descriptor: CInt,
        _ reader: LoopbackReader,
        _ deadline: ContinuousClock.Instant
    ) {
        var reader = reader
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = Glibc.read(descriptor, &buffer, buffer.count)
        guard count > 0 else {
            if count == 0 || errno != EAGAIN && errno != EINTR { end(number) }
            return
        }
        switch reader.take(buffer[..<count]) {
        case .incomplete: visits[number]?.phase = .asking(reader, until: deadline)
        case .refused(let status): answer(number, .refusal(status))
        case .request(let request):
            visits[number]?.phase = .waiting
            visited(SignInPrompt.Visitor(number), request)
        }
    }

    private mutating func answer(_ number: UInt64, _ response: LoopbackResponse) {
        guard let visit = visits[number] else { return }
        if case .answering = visit.phase { return }
        let deadline = ContinuousClock.now + patience
        visits[number]?.phase = .answering(response.bytes[...], until: deadline)
    }

    private mutating func write(
        _ number: UInt64,
        _ descriptor: CInt,
        _ rest: ArraySlice<UInt8>,
        _ deadline: ContinuousClock.Instant
    ) {
        // Not a signal for whoever has hung up.
        let count = rest.withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
        if count < 0, errno == EAGAIN || errno == EINTR { return }
        let left = rest.dropFirst(max(count, 0))
        guard count > 0, !left.isEmpty else { return finish(number, descriptor) }
        visits[number]?.phase = .answering(left, until: deadline)
    }

    /// What the visitor has sent beyond its request is read first: a socket that is closed with unread data takes the answer back.
    private mutating func finish(_ number: UInt64, _ descriptor: CInt) {
        shutdown(descriptor, CInt(SHUT_WR))
        var buffer = [UInt8](repeating: 0, count: 4096)
        for _ in 0..<16 where Glibc.read(descriptor, &buffer, buffer.count) <= 0 { break }
        end(number)
    }

    private mutating func endThoseLate() {
        let now = ContinuousClock.now
        for (number, visit) in visits where visit.deadline.map({ $0 <= now }) == true {
            if visit.isAsking { answer(number, .refusal(.tooSlow)) } else { end(number) }
        }
    }

    private mutating func end(_ number: UInt64) {
        guard let visit = visits.removeValue(forKey: number) else { return }
        close(visit.descriptor)
        // There is one again.
        pausedUntil = nil
    }
}
