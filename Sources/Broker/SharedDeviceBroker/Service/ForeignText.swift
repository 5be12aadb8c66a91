/// What another process says, within bounds. Characters are no measure of it: one may be of any length.
extension String {
    /// At most so many Unicode scalars of it.
    func shortened(to length: Int) -> String { String(String.UnicodeScalarView(unicodeScalars.prefix(length))) }

    /// The same as a part of one line.
    func forLog(_ length: Int) -> String {
        let kept = unicodeScalars.prefix(length).map { scalar -> Unicode.Scalar in
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator: "\u{FFFD}"
            default: scalar
            }
        }
        return String(String.UnicodeScalarView(kept))
    }
}
