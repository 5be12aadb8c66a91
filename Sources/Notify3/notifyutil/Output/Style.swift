import NotifyCenter

/// How things are printed.
struct Style: Equatable {
    enum Verbosity: Equatable {
        /// `-q`: no events.
        case quiet
        /// Darwin's short lines.
        case normal
        /// `-v`: with token, time, state and kind.
        case verbose
    }

    var verbosity = Verbosity.normal
    /// `--json`: the same as objects.
    var isJSON = false
}

/// One event that a registration reports.
struct Event {
    enum Content {
        /// With the name's state, where it was asked for.
        case darwin(Kind, state: StateReading?)
        case distributed(object: String?, userInfo: UserInfo?, sender: String?)
    }

    let token: CInt
    let time: Timestamp
    let name: String
    let content: Content
}

/// What `notify_get_state` said.
enum StateReading: Equatable {
    case value(UInt64)
    case failed(UInt32)
}

extension Style {
    /// An event's line; `nil` for none.
    func line(_ event: Event) -> String? {
        if verbosity == .quiet { return nil }
        if isJSON { return json(event) }
        guard verbosity == .verbose else { return event.name }
        let line = "[\(event.token)] \(event.time.text) \(event.name)"
        switch event.content {
        case .darwin(_, .failed(let status)): return "\(line) : Failed with code \(status)"
        case .darwin(let kind, .value(let state)): return "\(line) \(state) \(kind.word)"
        case .darwin(let kind, nil): return "\(line) \(kind.word)"
        case .distributed(let object, let userInfo, _):
            return "\(line) \(object.map(JSONLine.quoted) ?? "-") \(userInfo?.json ?? "-") distributed"
        }
    }

    private func json(_ event: Event) -> String {
        var line = JSONLine("event")
        line.add("name", event.name)
        line.add("token", event.token)
        line.add("time", json: event.time.text)
        switch event.content {
        case .darwin(let kind, let state):
            line.add("kind", kind.word)
            switch state {
            case nil: break
            case .value(let value): line.add("state", value)
            case .failed(let status):
                line.add("state", UInt64?.none)
                line.add("code", status)
            }
        case .distributed(let object, let userInfo, let sender):
            line.add("kind", "distributed")
            line.add("object", object)
            line.add("userinfo", json: userInfo?.json ?? "null")
            line.add("sender", sender)
        }
        return line.text
    }

    /// The line before the events of a signal; `nil` for none.
    func line(signal: CInt, time: Timestamp) -> String? {
        if verbosity == .quiet { return nil }
        guard isJSON else { return "SIGNAL \(signal)" }
        var line = JSONLine("signal")
        line.add("signal", signal)
        line.add("time", json: time.text)
        return line.text
    }

    /// The line of `-g`.
    func line(state: UInt64, of name: String) -> String {
        guard isJSON else { return "\(name) \(state)" }
        var line = JSONLine("state")
        line.add("name", name)
        line.add("state", state)
        return line.text
    }

    /// The line of what failed about a name; `nil` for the rest.
    func line(_ failure: Failure) -> String? {
        guard let name = failure.name else { return nil }
        guard isJSON else { return "\(name): Failed with code \(failure.status)" }
        var line = JSONLine("error")
        line.add("name", name)
        line.add("code", failure.status)
        return line.text
    }
}
