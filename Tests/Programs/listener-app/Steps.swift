import Glibc
@_spi(Extensions) import SharedDevice

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

/// Its description is requested after the step has returned and before it is in the journal.
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

    func cleanupBegan(_ change: AccountChange) async throws(SharedDeviceError) {
        log("begun", "\(directory)/log")
        pass("begun", deadlyPoint: deadlyPoint)
    }

    func cleanupDone(_ change: AccountChange, detail: String?) async throws(SharedDeviceError) {
        pass("before done", deadlyPoint: deadlyPoint)
        let left = names.filter { access("\(directory)/data/\($0)", F_OK) == 0 }
        log("done, \(left.count) left: \(detail ?? "")", "\(directory)/log")
        pass("after done", deadlyPoint: deadlyPoint)
    }

    func cleanupFailed(_ change: AccountChange, reason: String) async throws(SharedDeviceError) {
        log("failed: \(reason)", "\(directory)/log")
    }
}

func pass(_ point: String, deadlyPoint: String) {
    if point == deadlyPoint { kill(getpid(), SIGKILL) }
}

/// Writes a line to standard output without stdio, whose buffer would be lost with the process.
func say(_ line: String) { append(line, to: STDOUT_FILENO) }

func log(_ line: String, _ path: String) {
    let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
    append(line, to: file)
    close(file)
}

private func append(_ line: String, to descriptor: CInt) {
    let bytes = Array((line + "\n").utf8)
    guard write(descriptor, bytes, bytes.count) == bytes.count else { exit(74) }
}
