import Glibc
import SharedDevice

/// Removes the directory of an account, and says how much it was, or why it was not possible.
func remove(base: String, identifier: String, deadlyPoint: String, user: String) async {
    if let number = uid_t(user) {
        // The groups first, while it may.
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

/// Lists the directory until it is gone, and writes each number of names once. A list counts where the path leads to the listed
/// directory afterwards, too: otherwise it was moved meanwhile, and the answer is that there is none.
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
            // Hidden names do not count.
            if entry.pointee.d_name.0 != CChar(UInt8(ascii: ".")) { count += 1 }
        }
        var (listed, there) = (stat(), stat())
        let isThere =
            fstat(dirfd(directory), &listed) == 0 && stat(path, &there) == 0 && listed.st_ino == there.st_ino
        closedir(directory)
        if isThere, seen.insert(count).inserted { say("\(count)") }
    }
}
