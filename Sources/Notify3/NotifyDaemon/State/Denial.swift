package import NotifydProtocol

/// Why a call is refused; travels under the name of ``NotifydProtocol/Refusal``.
package struct Denial: Error, Sendable, Hashable {
    package let refusal: NotifydProtocol.Refusal
    /// What was attempted, what is in the way, and what helps.
    package let message: String

    package init(_ refusal: NotifydProtocol.Refusal, _ message: String) {
        self.refusal = refusal
        self.message = message
    }
}
