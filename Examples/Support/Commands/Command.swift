/// A line that a person or a test types.
package enum Command: Equatable {
    case signIn(String)
    case signOut
    case work
    case screen
    case help
    case quit
    /// An empty line.
    case nothing
    /// A line that is none of these.
    case unknown(String)

    /// The command that this line is.
    package init(_ line: String) {
        let words = line.split(whereSeparator: \.isWhitespace).map(String.init)
        self =
            switch (words.first, words.count) {
            case (nil, _): .nothing
            case ("signin", 2): .signIn(words[1])
            case ("signout", 1): .signOut
            case ("work", 1): .work
            case ("screen", 1): .screen
            case ("help", 1): .help
            case ("quit", 1): .quit
            default: .unknown(line)
            }
    }

    /// What there is.
    package static let overview = """
        signin NAME  sign somebody in for the whole device; asks for the password
        signout      sign out for the whole device
        work         one more unit of work; longer work goes on after it
        screen       show the screen as it is now
        help         this
        quit         end the app; the data of the user stays
        """
}
