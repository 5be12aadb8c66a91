import NotifyCenter

/// What a whole command line asks for.
struct Invocation: Equatable {
    /// From left to right.
    var commands: [Command] = []
    var style = Style()
    /// `nil` for what the environment names.
    var bus: Bus?
    /// For `notify_set_options`; 0 for none.
    var options: UInt32 = 0
    /// Whether to say when everything is in force.
    var announcesReady = false
    /// What Darwin's tool finds odd, and goes on.
    var warnings: [String] = []
    var help: Help?

    /// Where the usage text is wanted.
    enum Help: Equatable {
        /// `-h`, as on Darwin.
        case error
        /// `--help`
        case output
    }

    /// A command line that does not stand: nothing of it is carried out.
    struct Refusal: Error, Equatable {
        let message: String

        init(_ message: String) { self.message = message }
    }
}
