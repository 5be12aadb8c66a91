import DBusTransport
import SharedDevice

/// Answers as they are sent, for those who get the same: after a sign-out each app does, and an app that asks again and again. To write an answer
/// takes longer than all that is decided for it.
///
/// An answer counts by all that it says, never by who gets it. It may have a token in it, so that all are forgotten when the device changes,
/// and when something is wiped from the disk.
struct KnownAnswers {
    private typealias Known = (fields: BrokerProtocol.Fields, prepared: PreparedAnswer?)

    /// Newest last. Between two changes of the device there are few that many get: one for those who owe something, one for the others.
    private var answers: [Known] = []
    private static let capacity = 4
    /// How many sessions an answer may name that is kept: of more, the answer is one app's.
    private static let longest = 16

    /// - Returns: the answer where it was given before; `nil` the first time, and for a method whose answers differ from call to call.
    mutating func answer(_ fields: BrokerProtocol.Fields, of method: BrokerProtocol.Method) -> PreparedAnswer? {
        switch method {
        case .getCurrentAccount, .reportCleanup, .acquireTokenSilently: break
        default: return nil
        }
        guard let index = answers.firstIndex(where: { $0.fields == fields }) else {
            guard fields["owed"]?.elementsValue?.count ?? 0 <= Self.longest else { return nil }
            if answers.count == Self.capacity { answers.removeFirst() }
            answers.append((fields, nil))
            return nil
        }
        if answers[index].prepared == nil { answers[index].prepared = try? PreparedAnswer([.fields(fields)]) }
        return answers[index].prepared
    }
}
