/// A line of `notify.conf` that says nothing that can be done. It is passed over; the others hold.
package struct ConfigurationProblem: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Reason: Sendable, Hashable {
        /// It is no UTF-8, or holds U+0000.
        case noText
        /// It has 1024 bytes or more.
        case tooLong
        case unknownKeyword(String)
        /// A field that must be there.
        case missing(String)
        /// A field that is one too many.
        case superfluous(String)
        /// A user or group that is no number from 0 to 4294967295.
        case badIdentifier(String)
        /// An access that is not six characters of the form `rwrwrw`.
        case badAccess(String)
        /// A state that is no number of 64 bits.
        case badValue(String)
        /// A path that does not begin with a slash.
        case relativePath(String)
        /// A name or prefix for which other rules hold.
        case fixedName(String)
    }

    /// From 1.
    package let line: Int
    package let text: String
    package let reason: Reason

    package init(line: Int, text: String, reason: Reason) {
        self.line = line
        self.text = text
        self.reason = reason
    }

    /// What to write instead.
    package var remedy: String {
        switch reason {
        case .noText: "write it in UTF-8"
        case .tooLong: "shorten it to 1023 bytes"
        case .unknownKeyword: "write reserve, monitor, set or quit, or # before a comment"
        case .missing(let field): "write the \(field), too"
        case .superfluous: "leave it out"
        case .badIdentifier: "write the number of the user or group"
        case .badAccess: "write r or -, and w or -, for user, group and others, such as rwr-r-"
        case .badValue: "write a number from 0 to 18446744073709551615, or a negative one of 64 bits"
        case .relativePath: "write a path that begins with /"
        case .fixedName: "leave the line out"
        }
    }

    /// One line: where, what is wrong, and the remedy.
    package var description: String { "line \(line): \(message): “\(text)”; \(remedy)" }

    private var message: String {
        switch reason {
        case .noText: "this is no text"
        case .tooLong: "the line is too long"
        case .unknownKeyword(let word): "“\(word)” is no keyword"
        case .missing(let field): "the \(field) is missing"
        case .superfluous(let word): "“\(word)” is one field too many"
        case .badIdentifier(let word): "“\(word)” is no user or group"
        case .badAccess(let word): "“\(word)” is no access"
        case .badValue(let word): "“\(word)” is no state"
        case .relativePath(let path): "“\(path)” is not absolute"
        case .fixedName(let name): "who may use “\(name)” is decided by its form, or it never leaves its process"
        }
    }
}
