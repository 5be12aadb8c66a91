import Glibc
import NotifyCenter
@_spi(Extensions) import SharedDevice

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
        let isThere =
            fstat(dirfd(directory), &listed) == 0 && stat(path, &there) == 0 && listed.st_ino == there.st_ino
        closedir(directory)
        if isThere, seen.insert(count).inserted { say("\(count)") }
    }
}

/// Follows the account of the device and prints the state. Stores one note for each user that it opens.
func follow(bus: String, directory: String, deadlyPoint: String) async throws {
    let application = SharedDeviceApplication(
        identifier: "org.example.probe",
        bus: .address(bus),
        stateDirectory: "\(directory)/state"
    )
    let notes = try UserDataDirectory(path: "\(directory)/data") { checkpoint in
        pass("\(checkpoint)", deadlyPoint: deadlyPoint)
    }
    let cleanup = CleanupCoordinator(stateDirectory: "\(directory)/state")
    try cleanup.register("first") { _ in
        pass("first", deadlyPoint: deadlyPoint)
        say("first")
    }
    try cleanup.register("notes") { try await notes.remove($0.accounts) }
    try cleanup.register("last") { _ in
        pass("last", deadlyPoint: deadlyPoint)
        say("last")
    }
    await application.follow(cleanup) { state in
        switch state {
        case .hidden: say("hidden")
        case .nobody: say("nobody")
        case .open(let account):
            log("a note of \(account.username)", "\(try notes.open(for: account))/note")
            say("open \(account.username)")
        }
    }
}
