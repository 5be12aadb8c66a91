import Basics
import Glibc
@_spi(Extensions) import SharedDevice

/// An app that cleans up, for tests that need a process to crash. It kills itself with SIGKILL at POINT.
///
///     steps DIRECTORY [POINT]         three steps over the files in DIRECTORY/data, without a broker
///     remove BASE IDENTIFIER [POINT] [UID]  removes an account's directory, as another user if UID is given
///     list PATH                       lists a directory until it is gone
///
/// Returns if the arguments are none of these.
func runCleanupProbe(_ arguments: [String]) async {
    func argument(_ index: Int) -> String { index < arguments.count ? arguments[index] : "" }
    switch argument(0) {
    case "steps": await runSteps(in: argument(1), deadlyPoint: argument(2))
    case "remove": await remove(base: argument(1), identifier: argument(2), deadlyPoint: argument(3), user: argument(4))
    case "list": list(argument(1))
    default: break
    }
}

func remove(base: String, identifier: String, deadlyPoint: String, user: String) async {
    if let number = uid_t(user) {
        // Groups first, while the process may still change them.
        guard setgroups(0, nil) == 0, setgid(number) == 0, setuid(number) == 0 else { exit(77) }
    }
    do throws(UserDataError) {
        let data = try UserDataDirectory(path: base) { pass("\($0)", deadlyPoint: deadlyPoint) }
        say("\(try await data.remove([Account(identifier: identifier, username: "")]))")
        exit(0)
    } catch {
        say("\(error)")
        exit(1)
    }
}

/// Lists the directory until it is gone, and prints each number of entries once. A listing counts only if the path
/// still leads to the listed directory afterwards. Otherwise the directory was moved during the listing, and “none” is
/// printed.
func list(_ path: String) {
    var seen: Set<Int> = []
    while true {
        guard let directory = opendir(path) else {
            guard errno == ENOENT else { exit(1) }
            say("none")
            exit(0)
        }
        var count = 0
        while let entry = readdir(directory) {
            if entry.pointee.d_name.0 != CChar(UInt8(ascii: ".")) { count += 1 }
        }
        var (listed, there) = (stat(), stat())
        let isThere = fstat(dirfd(directory), &listed) == 0 && stat(path, &there) == 0 && listed.st_ino == there.st_ino
        closedir(directory)
        if isThere, seen.insert(count).inserted { say("\(count)") }
    }
}

// MARK: Steps without a broker

/// Runs three steps, each of which removes the file of its name in `data`. The file `log` records the events.
func runSteps(in directory: String, deadlyPoint: String) async {
    let names = ["one", "two", "three"]
    let path = "\(directory)/log"
    let coordinator = CleanupCoordinator()
    for name in names {
        do throws(SharedDeviceError) {
            try coordinator.register(name) { _ in
                pass("before \(name)", deadlyPoint: deadlyPoint)
                log("step \(name)", path)
                unlink("\(directory)/data/\(name)")
                pass("within \(name)", deadlyPoint: deadlyPoint)
                return Result(name: name, deadlyPoint: deadlyPoint)
            }
        } catch {
            exit(70)
        }
    }
    let account = Account(identifier: "1.t", username: "one")
    let change = AccountChange(previous: [(account, 1)], current: nil, epoch: 2)
    let reporter = Reporter(directory: directory, names: names, deadlyPoint: deadlyPoint)
    do throws(CleanupFailure) {
        try await coordinator.run(change, reporter: reporter)
        exit(0)
    } catch {
        exit(1)
    }
}

/// The result of a step. Its description is requested after the step has returned, and before the journal has the step.
private struct Result: CustomStringConvertible, Sendable {
    let name: String
    let deadlyPoint: String

    var description: String {
        pass("after \(name)", deadlyPoint: deadlyPoint)
        return "1 file"
    }
}

private struct Reporter: CleanupReporting {
    let directory: String
    let names: [String]
    let deadlyPoint: String

    var stateDirectory: String { "\(directory)/state" }

    func cleanupBegan(_ change: AccountChange) async throws(SharedDeviceError) { log("begun", "\(directory)/log") }

    func cleanupDone(_ change: AccountChange, detail: String?, took: Duration?) async throws(SharedDeviceError) {
        pass("before done", deadlyPoint: deadlyPoint)
        let left = names.filter { access("\(directory)/data/\($0)", F_OK) == 0 }
        log("done, \(left.count) left: \(detail ?? "")", "\(directory)/log")
        pass("after done", deadlyPoint: deadlyPoint)
    }

    func cleanupFailed(_ change: AccountChange, reason: String) async throws(SharedDeviceError) {
        log("failed: \(reason)", "\(directory)/log")
    }
}

// MARK: Output

func pass(_ point: String, deadlyPoint: String) {
    if point == deadlyPoint { kill(getpid(), SIGKILL) }
}

/// Writes a line to standard output without stdio, whose buffer would be lost with the process.
func say(_ line: String) { append(line, to: STDOUT_FILENO) }

/// Appends a line to a file with a single write.
func log(_ line: String, _ path: String) {
    let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
    append(line, to: file)
    close(file)
}

private func append(_ line: String, to descriptor: CInt) {
    guard writeAll(line + "\n", to: descriptor) == 0 else { exit(74) }
}
