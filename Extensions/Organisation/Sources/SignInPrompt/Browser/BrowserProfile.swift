import AppAdapters
import FoundationEssentials
import Glibc
@_spi(Extensions) package import SharedDevice

/// The directory of one sign-in's browser: its profile, its home, and the file that forwards it to the page. It is
/// deleted after the sign-in, so that no cookie remains. The next prompt removes the browser and directory of a killed
/// prompt.
package final class BrowserProfile: Sendable {
    package let path: String
    /// Locked while this process lives. The browser does not inherit the descriptor.
    private let lock: CInt

    private static let attempted = "make a directory for the browser"

    /// The directory of all sign-ins of this user: in `XDG_RUNTIME_DIR`, which is in memory, else in `TMPDIR`, else in
    /// `/tmp`.
    package static func root(environment: [String: String], user: UInt32) -> String {
        if let runtime = environment["XDG_RUNTIME_DIR"], runtime.hasPrefix("/") { return "\(runtime)/sign-in" }
        let temporary = environment["TMPDIR"].flatMap { $0.hasPrefix("/") ? $0 : nil } ?? "/tmp"
        return "\(temporary)/sign-in-\(user)"
    }

    /// Removes the remains of earlier sign-ins and creates a directory. Blocks this thread for the file system and for
    /// the end of old browsers.
    ///
    /// - Parameters:
    ///   - root: the directory of all sign-ins of this user. It is created if missing. If it belongs to another user, a
    ///     directory with a similar name replaces it.
    ///   - warn: called with each failure to delete. The sign-in continues, because its own directory is new.
    /// - Throws: ``SharedDeviceError/Code/brokerFailed`` if no private directory can be created.
    package static func make(
        in root: String,
        warn: @Sendable (String) -> Void
    ) async throws(SharedDeviceError) -> BrowserProfile {
        let root = try ownDirectory(root)
        let all = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard all >= 0 else { throw failure(root) }
        defer { close(all) }
        if await isAlone(all) { await removeLeftovers(in: root, warn) }
        // A prompt that removes remains may delete a directory before it is locked here, if this prompt has not waited
        // for that one.
        for _ in 0..<mostTries {
            let path = try newDirectory("\(root)/")
            guard let lock = locked(path) else {
                if errno == ENOENT || errno == EWOULDBLOCK { continue }
                defer { rmdir(path) }
                throw failure(path)
            }
            if leads(path, to: lock) { return BrowserProfile(path, lock) }
            close(lock)
        }
        throw SharedDeviceError(
            .brokerFailed,
            attempted: attempted,
            message: "another prompt has deleted each new directory in \(root); sign in again"
        )
    }

    private static let mostTries = 10

    private static func leads(_ path: String, to directory: CInt) -> Bool {
        var (named, opened) = (stat(), stat())
        return lstat(path, &named) == 0 && fstat(directory, &opened) == 0 && named.st_ino == opened.st_ino
    }

    /// Removes the remains of earlier sign-ins, whose browsers may still show a user's pages. Every prompt does so,
    /// even if it opens no browser.
    package static func removeLeftovers(of root: String, warn: @Sendable (String) -> Void) async {
        await removeLeftovers(ofOne: root, warn)
        for substitute in substitutes(of: root) { await removeLeftovers(ofOne: substitute, isSubstitute: true, warn) }
    }

    private static func removeLeftovers(
        ofOne root: String,
        isSubstitute: Bool = false,
        _ warn: @Sendable (String) -> Void
    ) async {
        let all = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard all >= 0 else { return }
        defer { close(all) }
        // Another user with write access could replace a directory with a link, and make this process delete files
        // elsewhere.
        var status = stat()
        guard fstat(all, &status) == 0, isOwn(status) else {
            let remedy = "nothing is removed there; set XDG_RUNTIME_DIR"
            return warn("\(root) is not a directory of this user alone, and \(remedy)")
        }
        guard await isAlone(all) else { return }
        await removeLeftovers(in: root, warn)
        // The call fails if a prompt uses the directory.
        if isSubstitute { rmdir(root) }
    }

    /// Waits until no other prompt is between creating and locking its directory. Gives up on a prompt that is stopped
    /// there; the next prompt then removes the remains.
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

    /// Deletes the directory. The browser must have ended.
    ///
    /// - Throws: ``SharedDeviceError/Code/brokerFailed`` with the remaining path.
    package func remove() async throws(SharedDeviceError) {
        let path = path
        guard let reason = await onSystemThread({ Self.delete(path) }) else { return }
        throw SharedDeviceError(.brokerFailed, attempted: "delete \(path)", message: "\(reason); delete it by hand")
    }

    /// Writes a page that forwards the browser, so that the address is on no command line.
    func startPage(to address: String, _ texts: PromptTexts) throws(SharedDeviceError) -> String {
        let file = "\(path)/start.html"
        guard
            FileManager.default.createFile(
                atPath: file,
                contents: Data(Page.leadingTo(address, texts).html.utf8),
                attributes: [.posixPermissions: 0o600]
            )
        else { throw Self.failure(file) }
        return "file://\(file)"
    }

    // MARK: Remains

    private static func removeLeftovers(in root: String, _ warn: @Sendable (String) -> Void) async {
        for name in (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? [] {
            let path = "\(root)/\(name)"
            // A running prompt holds the lock.
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

    /// - Returns: the reason of a failure.
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
        let reason = errno
        close(descriptor)
        errno = reason
        return nil
    }

    /// Creates the directory of all sign-ins. In a shared directory such as `/tmp`, another user may have taken the
    /// name, and must not be able to block this user's sign-in.
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

    /// This user's directories that replace `root`.
    private static func substitutes(of root: String) -> [String] {
        let url = URL(fileURLWithPath: root)
        let (parent, beginning) = (url.deletingLastPathComponent().path, url.lastPathComponent + "-")
        let names = (try? FileManager.default.contentsOfDirectory(atPath: parent)) ?? []
        return names.filter { $0.hasPrefix(beginning) }.map { "\(parent)/\($0)" }.filter { path in
            var status = stat()
            return lstat(path, &status) == 0 && isOwn(status)
        }
    }

    /// Whether it is a directory that only this user can access.
    private static func isOwn(_ status: stat) -> Bool {
        status.st_mode & S_IFMT == S_IFDIR && status.st_uid == geteuid() && status.st_mode & 0o077 == 0
    }

    private static func failure(_ path: String) -> SharedDeviceError {
        let reason = String(cString: strerror(errno))
        return SharedDeviceError(.brokerFailed, attempted: attempted, message: "\(path): \(reason)")
    }
}
