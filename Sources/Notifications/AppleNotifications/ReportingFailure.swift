import NotifyCenter

/// Runs the body of a function that Apple declares without a way to throw.
func reportingFailure(_ function: String, _ body: () throws -> Void) {
    do {
        try body()
    } catch {
        UnthrownFailures.report(error, in: function)
    }
}
