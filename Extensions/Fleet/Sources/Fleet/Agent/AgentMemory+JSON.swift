package import Basics

// The stored form of an agent's memory. Only the agent writes the file, so any deviation is damage.

extension AgentMemory {
    package var json: JSONValue {
        var members: [String: JSONValue] = [
            "seenAll": .number(seen.all), "seenOwn": .number(seen.own), "sequenceLimit": .number(sequenceLimit),
            "intents": .object(
                Dictionary(
                    uniqueKeysWithValues: intents.map {
                        ($0.rawValue, .array([.number($1.order), .number($1.session)]))
                    }
                )
            ),
        ]
        if let result {
            members["result"] = .array([.number(result.order), .string(result.outcome.rawValue), .number(result.ended)])
        }
        members["contact"] = contact?.json
        if let session { members["session"] = .array([.number(session.epoch), session.since.json]) }
        if let policy {
            members["policy"] = .array(
                policy.contactTimeout.map { [.number($0), .boolean(policy.requiresContact)] } ?? []
            )
        }
        if ended > 0 { members["ended"] = .number(ended) }
        members["damage"] = damage.map { .string($0) }
        return .object(members)
    }

    package init(_ json: JSONValue) throws(FleetRefusal) {
        seen = DeviceReport.Seen(all: try json.whole("seenAll"), own: try json.whole("seenOwn"))
        sequenceLimit = try json.whole("sequenceLimit")
        for (word, value) in json["intents"]?.object ?? [:] {
            guard let scope = OrderScope(rawValue: word), let pair = value.array, pair.count == 2,
                let order = pair[0].wholeNumber, let session = pair[1].wholeNumber
            else { throw FleetRefusal("“intents” is damaged") }
            intents[scope] = Intent(order: order, session: session)
        }
        if let value = json["result"] {
            guard let parts = value.array, parts.count == 3, let order = parts[0].wholeNumber,
                let outcome = parts[1].string.flatMap(DeviceReport.Outcome.init), let ended = parts[2].wholeNumber
            else { throw FleetRefusal("“result” is damaged") }
            result = DeviceReport.Result(order: order, outcome: outcome, ended: ended)
        }
        contact = try json["contact"].map(Stopwatch.init)
        if let value = json["session"] {
            guard let parts = value.array, parts.count == 2, let epoch = parts[0].wholeNumber else {
                throw FleetRefusal("“session” is damaged")
            }
            session = Session(epoch: epoch, since: try Stopwatch(parts[1]))
        }
        if json["policy"] == .array([]) {
            policy = AgentState.Policy()
        } else if let value = json["policy"] {
            guard let parts = value.array, parts.count == 2, let timeout = parts[0].number,
                AgentState.Policy.timeouts.contains(timeout), let isRequired = parts[1].boolean
            else { throw FleetRefusal("“policy” is damaged") }
            policy = AgentState.Policy(contactTimeout: timeout, requiresContact: isRequired)
        }
        ended = try json.wholeIfThere("ended") ?? 0
        damage = json["damage"]?.string
    }
}

extension Stopwatch {
    /// The beginning, the counted seconds, and the moment of the count without its wall clock, which is not needed.
    fileprivate var json: JSONValue {
        .array(
            [.number(begin.uptime), .number(begin.wall), .string(begin.boot)]
                + (mark == begin ? [] : [.number(counted), .number(mark.uptime), .string(mark.boot)])
        )
    }

    fileprivate init(_ json: JSONValue) throws(FleetRefusal) {
        guard let parts = json.array, [3, 6].contains(parts.count), let uptime = parts[0].number,
            let wall = parts[1].number, let boot = parts[2].string
        else { throw FleetRefusal("a moment is damaged") }
        let begin = Moment(uptime: uptime, wall: wall, boot: boot)
        guard parts.count == 6 else {
            self.init(begin: begin)
            return
        }
        // A negative count would extend the limit.
        guard let counted = parts[3].number, counted >= 0, counted.isFinite, let at = parts[4].number,
            let run = parts[5].string
        else { throw FleetRefusal("a moment is damaged") }
        self.init(begin: begin, counted: counted, mark: Moment(uptime: at, wall: wall, boot: run))
    }
}
