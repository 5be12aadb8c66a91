import Glibc

/// The counterpart of the C peers on NotifyCenter, with their command line.
@main
enum SwiftPeer {
    static func main() {
        let arguments = Array(CommandLine.arguments.dropFirst())
        guard let role = arguments.first else { end("a role is missing") }
        let roles = Roles(bus: Bus())
        let rest = arguments.dropFirst()
        switch (role, rest.count) {
        case ("echo", 2): roles.echo(rest[1], reply: rest[2])
        case ("ping", 3): roles.ping(rest[1], reply: rest[2], count: number(rest[3]))
        case ("sink", 2): roles.sink(rest[1], count: number(rest[2]))
        case ("flood", 2): roles.flood(rest[1], count: number(rest[2]))
        case ("listen", 2): roles.listen(rest[1], count: number(rest[2]))
        case ("post", 3): roles.post(rest[1], count: number(rest[2]), microseconds: number(rest[3]))
        case ("register", 2): roles.register(number(rest[1]), prefix: rest[2])
        case ("same", 2): roles.same(rest[1], count: number(rest[2]))
        case ("idle", 1): roles.idle(rest[1])
        default: end("\(role): no such role, or wrong arguments for it")
        }
    }

    private static func number(_ text: String) -> Int {
        guard let value = Int(text), value > 0 else { end("\(text): a positive number was expected") }
        return value
    }
}
