import Glibc

/// Nanoseconds of CLOCK_MONOTONIC.
func now() -> Int {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The median of the nanoseconds that `turn` returns, called `count` times after some that are not counted, as in Peers/clock.h.
func medianTime(_ count: Int, _ turn: () async -> Int) async -> Int {
    var times: [Int] = []
    times.reserveCapacity(count)
    for index in -(count / 10 + 1)..<count {
        let time = await turn()
        if index >= 0 { times.append(time) }
    }
    return times.sorted()[count / 2]
}

/// What fails ends the process: half a measurement is none.
func must<Value>(_ attempt: String, _ body: () async throws -> Value) async -> Value {
    do {
        return try await body()
    } catch {
        end("\(attempt): \(error)")
    }
}

/// Prints a line for the driver.
func say(_ line: String) {
    print(line)
    fflush(nil)
}

/// Ends the process with a reason.
func end(_ reason: String) -> Never {
    var text = "peer: \(reason)\n"
    // Where it fails there is nobody left to tell; the exit status says it too.
    text.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
    exit(1)
}
