package import DBusTransport
import SharedDevice
import Synchronization

/// What apps were answered that asked who is signed in and owe nothing, for as long as nothing changes: the same question is then answered
/// without the broker's queue, which may wait for the disk.
///
/// Only what is on the disk is in here. The broker forgets all of it with each change, before it announces any: whoever is told to ask gets
/// the new answer. Who asks while a change is being committed gets the old one, as if asked before.
package final class StandingAnswers: Sendable {
    private let answers = Locked<[String: DBusValue]>([:])

    /// The answer for an app, as it travels.
    package subscript(app: String) -> DBusValue? { answers.withLock { $0[app] } }

    /// On the broker's queue, in one step with the finding of the answer.
    func keep(_ answer: SessionAnswer, for app: String) {
        let fields = DBusValue.fields(answer.fields)
        answers.withLock { $0[app] = fields }
    }

    /// On the broker's queue, in one step with the change.
    func forget() { answers.withLock { $0 = [:] } }
}
