import ExampleSupport
import Foundation

/// An app's event file, as it grows.
final class EventFile {
    let path: String
    private(set) var events: [Event] = []
    private var position: UInt64 = 0
    private var pending = Data()

    init(path: String) { self.path = path }

    /// Reads what is new.
    func refresh() throws {
        guard FileManager.default.fileExists(atPath: path) else { return }
        let handle = try FileHandle(forReadingFrom: URL(fileURLWithPath: path))
        defer { try? handle.close() }
        try handle.seek(toOffset: position)
        let data = try handle.readToEnd() ?? Data()
        position += UInt64(data.count)
        pending += data
        while let end = pending.firstIndex(of: UInt8(ascii: "\n")) {
            events.append(try JSONDecoder().decode(Event.self, from: pending[..<end]))
            pending = Data(pending[(end + 1)...])
        }
    }
}
