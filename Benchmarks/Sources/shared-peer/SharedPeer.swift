import SharedDevice

/// An app on a shared device, in one of the roles that the README describes.
@main
enum SharedPeer {
    static func main() async {
        let arguments = CommandLine.arguments
        guard arguments.count >= 4 else { end("ROLE IDENTIFIER FOLDER are missing") }
        let app = App(identifier: arguments[2], stateDirectory: arguments[3])
        let rest = Array(arguments.dropFirst(4))
        switch (arguments[1], rest.count) {
        case ("follow", 0): await app.follow()
        case ("sign-in", 3): await app.stay(Credentials(username: rest[0], password: rest[1]), others: number(rest[2]))
        case ("sign-out", 4):
            let credentials = Credentials(username: rest[0], password: rest[1])
            await app.signOut(credentials, count: max(1, number(rest[2])), others: number(rest[3]))
        case ("account", 1): await app.askForAccount(count: max(1, number(rest[0])))
        case ("token", 1): await app.askForToken(count: max(1, number(rest[0])))
        default: end("\(arguments[1]): no such role, or wrong arguments for it")
        }
    }

    private static func number(_ text: String) -> Int {
        guard let value = Int(text), value >= 0 else { end("\(text): a number was expected") }
        return value
    }
}
