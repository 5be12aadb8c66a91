/// A mistake that an app can make. The torture has to find each of them, or it would find no others.
enum Mutant: String {
    /// Reports that the data is gone, and deletes it then.
    case reportsBeforeDeleting = "reports-before-deleting"
    /// Does nothing about what its first change after a start says it still has.
    case forgetsDebts = "forgets-debts"
    /// Leaves the screen as it is until there is something else to show.
    case keepsScreen = "keeps-screen"
    /// Goes on with its work while it cleans up.
    case worksOn = "works-on"
    /// Takes the same user in another session for the same session.
    case sparesReturningUser = "spares-returning-user"
    /// Cleans up only when nobody is signed in, not when the next user is there already.
    case cleansForNobodyOnly = "cleans-for-nobody-only"
}
