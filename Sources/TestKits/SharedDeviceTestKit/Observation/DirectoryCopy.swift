import Foundation
import Glibc

/// Copies what an app may be writing to meanwhile.
enum DirectoryCopy {
    /// Copies files, directories and links. What disappears or cannot be read is left out: less is then found in the copy, never more.
    static func copy(_ source: String, to target: String) {
        var status = stat()
        guard lstat(source, &status) == 0 else { return }
        let files = FileManager.default
        switch status.st_mode & S_IFMT {
        case S_IFDIR:
            guard (try? files.createDirectory(atPath: target, withIntermediateDirectories: true)) != nil else { return }
            for name in (try? files.contentsOfDirectory(atPath: source)) ?? [] {
                copy("\(source)/\(name)", to: "\(target)/\(name)")
            }
        case S_IFREG, S_IFLNK:
            try? files.copyItem(atPath: source, toPath: target)
        default:
            break
        }
    }
}
