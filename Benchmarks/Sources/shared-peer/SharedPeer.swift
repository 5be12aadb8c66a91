import Glibc
import SharedDevice

/// An app on a shared device, in one of the roles that Peers/README.md describes.
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

/// Nanoseconds of CLOCK_MONOTONIC.
func now() -> Int {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Calls `turn` `count` times, and returns the median of the nanoseconds that it returns. First come a tenth as many
/// calls that do not count, as in Peers/common.h.
func medianTime(_ count: Int, _ turn: () async -> Int) async -> Int {
    var times: [Int] = []
    times.reserveCapacity(count)
    for index in -(count / 10 + 1)..<count {
        let time = await turn()
        if index >= 0 { times.append(time) }
    }
    return times.sorted()[count / 2]
}

/// Calls `body`. An error ends the process, because a partial measurement is useless.
func must<Value>(_ attempt: String, _ body: () async throws -> Value) async -> Value {
    do {
        return try await body()
    } catch {
        end("\(attempt): \(error)")
    }
}

func say(_ line: String) {
    print(line)
    fflush(nil)
}

func end(_ reason: String) -> Never {
    var text = "peer: \(reason)\n"
    // If the write fails, the exit status still reports the error.
    text.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
    exit(1)
}
