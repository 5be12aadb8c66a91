import CommandSupport
import NotifyCenter

struct Post: Sendable {
    enum Center: Sendable {
        case darwin
        case distributed(object: String?, userInfo: UserInfo?)
    }

    let time: Timestamp
    let name: String
    /// The poster's unique bus name.
    let sender: String?
    let center: Center

    init(time: Timestamp = .now, name: NotificationName, sender: String?, center: Center) {
        (self.time, self.name, self.sender, self.center) = (time, name.rawValue, sender, center)
    }

    /// The approximate memory that it takes, in bytes.
    var size: Int {
        guard case .distributed(let object, let userInfo) = center else { return name.utf8.count }
        return name.utf8.count + (object?.utf8.count ?? 0) + PropertyListValue.dictionary(userInfo ?? [:]).size
    }

    func line(isJSON: Bool, sender: Sender?) -> String { isJSON ? json(sender) : text(sender) }

    private func text(_ sender: Sender?) -> String {
        var words = [time.text, name.visible]
        switch center {
        case .darwin: words.append("darwin")
        case .distributed: words.append("distributed")
        }
        if let sender { words += [sender.process.map { "\($0)" } ?? "-", sender.program?.visible ?? "-"] }
        if case .distributed(let object, let userInfo) = center {
            words += [object.map(JSONLine.quoted) ?? "-", userInfo?.json ?? "-"]
        }
        return words.joined(separator: " ")
    }

    private func json(_ process: Sender?) -> String {
        var line = JSONLine("post")
        line.add("name", name)
        line.add("time", json: time.text)
        switch center {
        case .darwin: line.add("center", "darwin")
        case .distributed: line.add("center", "distributed")
        }
        line.add("sender", sender)
        if let process {
            line.add("pid", process.process)
            line.add("uid", process.user)
            line.add("program", process.program)
        }
        if case .distributed(let object, let userInfo) = center {
            line.add("object", object)
            line.add("userinfo", json: userInfo?.json ?? "null")
        }
        return line.text
    }
}

extension PropertyListValue {
    fileprivate var size: Int {
        let contents: Int =
            switch self {
            case .string(let text): text.utf8.count
            case .data(let bytes): bytes.count
            case .array(let elements): elements.reduce(0) { $0 + $1.size }
            case .dictionary(let members): members.reduce(0) { $0 + $1.key.utf8.count + $1.value.size }
            case .integer, .unsigned, .double, .bool, .date: 0
            }
        return MemoryLayout<PropertyListValue>.stride + contents
    }
}
