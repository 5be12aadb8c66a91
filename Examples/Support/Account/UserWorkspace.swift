package import SharedDevice

/// An app's data of whoever is signed in, on disk and in memory: the part of a listener app that is its own.
///
/// ``AccountLoop`` calls it in the order that a shared device needs: nothing between ``close()`` and the next ``open(for:)``
/// but ``deleteData(of:)``, and no work under way by then.
package protocol UserWorkspace: Actor {
    /// Removes what an earlier run left half done, whoever's it was. Called once, before anything else.
    func prepare() throws

    /// Loads the account's data, or makes a place for it.
    func open(for account: Account) throws

    /// What there is to show.
    func display() throws -> Display

    /// Does one unit of work and says what it was.
    func work() throws -> String

    /// Goes on with longer work until its task is cancelled; returns, when it has really ended, how far it came.
    func workUntilCancelled() async throws -> String

    /// Forgets what is in memory.
    func close()

    /// Deletes all data of the account, complete or half written, and says how much it was. Also where an earlier attempt
    /// was cut short, and where there is none. On return not a byte of it is left, and on throwing it is asked for again.
    func deleteData(of account: Account) throws -> String
}
