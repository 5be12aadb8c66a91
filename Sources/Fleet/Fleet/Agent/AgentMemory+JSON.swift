package import StrictJSON

// What an agent keeps on the disk. The file is its own: what does not fit is damage.

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
            members["result"] = .array([
                .number(result.order), .string(result.outcome.rawValue), .number(result.ended),
            ])
        }
        members["contact"] = contact?.json
        if let session { members["session"] = .array([.number(session.epoch), session.since.json]) }
        return .object(members)
    }

    package init(_ json: JSONValue) throws(FleetMessageError) {
        seen = DeviceReport.Seen(all: try json.whole("seenAll"), own: try json.whole("seenOwn"))
        sequenceLimit = try json.whole("sequenceLimit")
        for (word, value) in json["intents"]?.object ?? [:] {
            guard let scope = OrderScope(rawValue: word), let pair = value.array, pair.count == 2,
                let order = pair[0].wholeNumber, let session = pair[1].wholeNumber
            else { throw FleetMessageError("“intents” is damaged") }
            intents[scope] = Intent(order: order, session: session)
        }
        if let value = json["result"] {
            guard let parts = value.array, parts.count == 3, let order = parts[0].wholeNumber,
                let outcome = parts[1].string.flatMap(DeviceReport.Outcome.init), let ended = parts[2].wholeNumber
            else { throw FleetMessageError("“result” is damaged") }
            result = DeviceReport.Result(order: order, outcome: outcome, ended: ended)
        }
        contact = try json["contact"].map(Moment.init)
        if let value = json["session"] {
            guard let parts = value.array, parts.count == 2, let epoch = parts[0].wholeNumber else {
                throw FleetMessageError("“session” is damaged")
            }
            session = Session(epoch: epoch, since: try Moment(parts[1]))
        }
    }
}

extension Moment {
    fileprivate var json: JSONValue { .array([.number(uptime), .number(wall), .string(boot)]) }

    fileprivate init(_ json: JSONValue) throws(FleetMessageError) {
        guard let parts = json.array, parts.count == 3, let uptime = parts[0].number, let wall = parts[1].number,
            let boot = parts[2].string
        else { throw FleetMessageError("a moment is damaged") }
        self.init(uptime: uptime, wall: wall, boot: boot)
    }
}
