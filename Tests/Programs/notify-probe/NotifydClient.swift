import Basics
import DBus
import NotifyCenter
import Synchronization

/// A process with registrations, for the tests. It carries out the commands from its standard input, prints the results,
/// and ends with its input.
///
///   call METHOD ARGUMENT…   prints “ok VALUE…” or “refused NAME”
///
/// An argument is TYPE:VALUE; `as:` takes texts with commas between them. The process replies to `Tell` with the names
/// that it has entered. It prints `suspend`, `resume` and `keep`, and `posted INTERFACE` for each post.
func runNotifydClient() throws {
    let names = Locked<[String]>([])
    let connection = try DBusConnection.open()

    let signals = connection.onSignal { message in
        if message.member == "Posted" { say("posted \(message.interface ?? "")") }
        guard message.interface == NotifydProtocol.interface, let member = message.member,
            let arguments = try? message.arguments()
        else { return }
        switch NotifydProtocol.Signal(rawValue: member) {
        case .tell:
            let report = ProcessReport(names: names.withLock { $0 }.map { NameReport(name: $0) })
            let values = [arguments[0]] + report.values
            let call = try? NotifydProtocol.call(.report, values, options: [.noReply, .noAutoStart])
            if let call { try? connection.send(call) }
        case .suspend, .resume, .keep: say(member.lowercased())
        case nil: break
        }
    }
    say("ready \(connection.uniqueName ?? "")")

    while let line = readLine() {
        let words = line.split(separator: " ")
        guard words.count >= 2, let method = NotifydProtocol.Method(rawValue: String(words[1])) else {
            say("refused no-such-command")
            continue
        }
        let arguments = words.dropFirst(2).compactMap(value)
        if method == .enter { names.withLock { $0 += arguments.first?.stringsValue ?? [] } }
        do throws(DBusError) {
            let answer = try connection.callAndWait(NotifydProtocol.call(method, arguments))
            let texts = answer.map { $0.stringValue ?? $0.unsignedValue.map { "\($0)" } ?? "\($0)" }
            say("ok " + texts.joined(separator: " ").split(separator: "\n").joined(separator: "; "))
        } catch {
            say("refused \(NotifydProtocol.refusal(error)?.rawValue ?? error.name ?? "\(error)")")
        }
    }
    signals.cancel()
}

private func value(_ word: Substring) -> DBusValue? {
    let text = String(word.drop { $0 != ":" }.dropFirst())
    return switch word.prefix(while: { $0 != ":" }) {
    case "s": .string(text)
    case "as": .array(text.split(separator: ",").map { .string(String($0)) }, of: "s")
    case "t": UInt64(text).map { .uint64($0) }
    case "u": UInt32(text).map { .uint32($0) }
    default: nil
    }
}
