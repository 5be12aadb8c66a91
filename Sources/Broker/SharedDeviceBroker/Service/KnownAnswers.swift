import DBus
import DBusService
@_spi(Extensions) import SharedDevice

/// A cache of encoded responses that several callers get, as all apps do after a sign-out. Encoding a response takes
/// longer than deciding on it.
///
/// The key is the whole content of a response; its recipient does not matter. A response may contain a token, so the
/// cache is cleared when the device changes and when the store erases data.
struct KnownAnswers {
    private typealias Known = (fields: BrokerProtocol.Fields, prepared: PreparedAnswer?)

    /// Newest last. Between two changes of the device, few responses go to many apps: one for apps that owe a cleanup,
    /// one for the others.
    private var answers: [Known] = []
    private static let capacity = 4
    /// The maximum of sessions in a cached response. A response with more is specific to one app.
    private static let longest = 16

    /// - Returns: The cached response; `nil` the first time, and for a method whose responses always differ.
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
