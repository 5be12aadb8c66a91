import AppAdapters
import FoundationEssentials
import Glibc
package import SharedDevice

/// A directory for one sign-in's browser: its profile, its home, and the file by which it is led to the page. It dies with the sign-in, so that no
/// cookie outlives it. What a killed prompt left, browser and directory, the next one removes.
package final class BrowserProfile: Sendable {
    /// Where it is.
    package let path: String
    /// Locked for as long as this process lives. A browser does not inherit it.
    private let lock: CInt

    private static let attempted = "make a directory for the browser"

    /// The directory of all sign-ins of this user: in `XDG_RUNTIME_DIR`, which is in memory, else in `TMPDIR`, else in `/tmp`.
    package static func root(environment: [String: String], user: UInt32) -> String {
        if let runtime = environment["XDG_RUNTIME_DIR"], runtime.hasPrefix("/") { return "\(runtime)/sign-in" }
        let temporary = environment["TMPDIR"].flatMap { $0.hasPrefix("/") ? $0 : nil } ?? "/tmp"
        return "\(temporary)/sign-in-\(user)"
    }

    /// Removes what earlier sign-ins left, and makes a new directory. Blocks this thread on the file system, and on browsers that have to end.
    ///
    /// - Parameters:
    ///   - root: the directory of all sign-ins of this user. It is made if it is missing; if it is somebody else's, one beside it takes its place.
    ///   - warn: is told of what could not be removed. The sign-in goes on: its own directory is new.
    /// - Throws: ``SharedDeviceError/Code/brokerFailed`` if no directory can be made that is this user's alone.
    package static func make(
        in root: String,
        warn: @Sendable (String) -> Void
    ) async throws(SharedDeviceError)
        -> BrowserProfile
    {
        let root = try ownDirectory(root)
        let all = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard all >= 0 else { throw failure(root) }
        defer { close(all) }
        if await isAlone(all) { await removeLeftovers(in: root, warn) }
        let path = try newDirectory("\(root)/")
        guard let lock = locked(path) else { throw failure(path) }
        return BrowserProfile(path, lock)
    }

    /// Removes what earlier sign-ins left, whose browsers may still show somebody's pages: every prompt does, whether it opens a browser or not.
    package static func removeLeftovers(of root: String, warn: @Sendable (String) -> Void) async {
        await removeLeftovers(ofOne: root, warn)
        for substitute in substitutes(of: root) {
            await removeLeftovers(ofOne: substitute, isSubstitute: true, warn)
        }
    }

    private static func removeLeftovers(
        ofOne root: String,
        isSubstitute: Bool = false,
        _ warn: @Sendable (String) -> Void
    ) async {
        let all = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard all >= 0 else { return }
        defer { close(all) }
        // Whoever else may change it could have this user delete files elsewhere, by a link in the place of a directory.
        var status = stat()
        guard fstat(all, &status) == 0, isOwn(status) else {
            let remedy = "nothing is removed there; set XDG_RUNTIME_DIR"
            return warn("\(root) is not a directory of this user alone, and \(remedy)")
        }
        guard await isAlone(all) else { return }
        await removeLeftovers(in: root, warn)
        // Stays if a prompt is in it.
        if isSubstitute { rmdir(root) }
    }

    /// Whether no other prompt is about to lock what it has just made. One that is stopped in the middle of it does not hold up this one: what is
    /// left is then the next prompt's to remove.
    private static func isAlone(_ directory: CInt) async -> Bool {
        for _ in 0..<40 {
            if flock(directory, LOCK_EX | LOCK_NB) == 0 { return true }
            try? await Task.sleep(for: .milliseconds(50))
        }
        return false
    }

    private init(_ path: String, _ lock: CInt) {
        self.path = path
        self.lock = lock
    }

    deinit { close(lock) }

    /// Deletes it. Its browser has ended.
    ///
    /// - Throws: ``SharedDeviceError/Code/brokerFailed`` with what is left.
    package func remove() async throws(SharedDeviceError) {
        let path = path
        guard let reason = await onSystemThread({ Self.delete(path) }) else { return }
        throw SharedDeviceError(.brokerFailed, attempted: "delete \(path)", message: "\(reason); delete it by hand")
    }

    /// A page in the directory that leads the browser on: its address is on no command line.
    func startPage(to address: String) throws(SharedDeviceError) -> String {
        let file = "\(path)/start.html"
        guard
            FileManager.default.createFile(
                atPath: file,
                contents: Data(Page.leadingTo(address).html.utf8),
                attributes: [.posixPermissions: 0o600]
            )
        else { throw Self.failure(file) }
        return "file://\(file)"
    }

    // MARK: What is left

    private static func removeLeftovers(in root: String, _ warn: @Sendable (String) -> Void) async {
        for name in (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? [] {
            let path = "\(root)/\(name)"
            // A prompt that runs has it.
            guard let lock = locked(path) else { continue }
            defer { close(lock) }
            do throws(AdapterFailure) {
                var settings = OwnedCommand.Settings(mark: path, command: [])
                settings.isMarkedByArguments = true
                try await OwnedCommand(settings).stop()
            } catch {
                warn("\(error)")
                continue
            }
            if let reason = await onSystemThread({ delete(path) }) { warn("could not delete \(path): \(reason)") }
        }
    }

    /// - Returns: why it is not gone.
    private static func delete(_ path: String) -> String? {
        do {
            try FileManager.default.removeItem(atPath: path)
            return nil
        } catch {
            return "\(error)"
        }
    }

    private static func locked(_ path: String) -> CInt? {
        let descriptor = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        if flock(descriptor, LOCK_EX | LOCK_NB) == 0 { return descriptor }
        close(descriptor)
        return nil
    }

    /// Makes the directory of all sign-ins. In a directory that everybody writes to, somebody else may have been first, and must not keep this user
    /// from signing in.
    private static func ownDirectory(_ path: String) throws(SharedDeviceError) -> String {
        guard mkdir(path, 0o700) == 0 || errno == EEXIST else { throw failure(path) }
        var status = stat()
        guard lstat(path, &status) == 0 else { throw failure(path) }
        return isOwn(status) ? path : try newDirectory("\(path)-")
    }

    private static func newDirectory(_ beginning: String) throws(SharedDeviceError) -> String {
        var template = Array("\(beginning)XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw failure(beginning) }
        return template.withUnsafeBufferPointer { String(cString: $0.baseAddress.unsafelyUnwrapped) }
    }

    /// This user's directories that took the place of `root`.
    private static func substitutes(of root: String) -> [String] {
        let url = URL(fileURLWithPath: root)
        let (parent, beginning) = (url.deletingLastPathComponent().path, url.lastPathComponent + "-")
        let names = (try? FileManager.default.contentsOfDirectory(atPath: parent)) ?? []
        return names.filter { $0.hasPrefix(beginning) }.map { "\(parent)/\($0)" }
            .filter { path in
                var status = stat()
                return lstat(path, &status) == 0 && isOwn(status)
            }
    }

    /// Whether it is a directory of this user alone.
    private static func isOwn(_ status: stat) -> Bool {
        status.st_mode & S_IFMT == S_IFDIR && status.st_uid == geteuid() && status.st_mode & 0o077 == 0
    }

    private static func failure(_ path: String) -> SharedDeviceError {
        let reason = String(cString: strerror(errno))
        return SharedDeviceError(.brokerFailed, attempted: attempted, message: "\(path): \(reason)")
    }
}
