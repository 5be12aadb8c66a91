import DeviceConfiguration
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

/// Counts and deletes traces that are files. Each path is first checked as text, as in manifests, and then deleted by
/// ``DeclaredPath``.
struct TraceFiles: Sendable {
    let home: String
    /// A directory that must survive the deletion.
    let kept: String

    static func isThere(_ path: String) -> Bool {
        var status = stat()
        return lstat(path, &status) == 0
    }

    /// Counts the files. Unreadable files are not counted; the deletion reports them.
    func look(at paths: [String]) async throws(AdapterFailure) -> TraceFinding {
        for path in paths where Self.isThere(path) { try check(path) }
        return await onSystemThread {
            let found = Self.count(at: paths)
            return .files(found.files, found.bytes)
        }
    }

    /// Counts like the deletion, with a bounded sum of lengths: a user may create sparse files of any size.
    static func count(at paths: [String]) -> UserDataDirectory.Removed {
        var found = UserDataDirectory.Removed()
        for path in paths {
            let below = (try? FileManager.default.subpathsOfDirectory(atPath: path)) ?? []
            for file in [path] + below.map({ "\(path)/\($0)" }) {
                var status = stat()
                guard lstat(file, &status) == 0, status.st_mode & S_IFMT != S_IFDIR else { continue }
                found.add(bytes: status.st_mode & S_IFMT == S_IFREG ? Int(status.st_size) : 0)
            }
        }
        return found
    }

    /// Deletes the content of the paths. A directory remains, empty. Continues after a failure, and then throws the
    /// first one.
    func remove(_ paths: [String]) async throws(AdapterFailure) -> TraceFinding {
        var problem: AdapterFailure?
        var allowed: [String] = []
        for path in paths where Self.isThere(path) {
            do throws(AdapterFailure) {
                try check(path)
                allowed.append(path)
            } catch {
                problem = problem ?? error
            }
        }
        let removed = try await Deletion(paths: allowed, user: geteuid()).run()
        if let problem { throw problem }
        return .files(removed.files, removed.bytes)
    }

    private func check(_ path: String) throws(AdapterFailure) {
        let remedy = "Name the directory itself in the session's settings, or leave the step out (--without)"
        do throws(ValueFlaw) {
            _ = try CleanupPath.checked(path, home: home, keeping: [kept])
        } catch {
            throw AdapterFailure("delete \(path): \(error.message)", remedy: remedy)
        }
        var status = stat()
        // Deleting would remove the link and leave its target.
        guard lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFLNK else { return }
        throw AdapterFailure("delete \(path): it is a symbolic link, and no link is followed", remedy: remedy)
    }
}
