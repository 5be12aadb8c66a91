import Foundation

package enum Repository {
    package static func path(_ path: String) -> String {
        var folder = URL(fileURLWithPath: #filePath)
        for _ in 0..<5 { folder.deleteLastPathComponent() }
        return folder.appendingPathComponent(path).path
    }
}
