import Foundation

/// The session that a file or a screen belongs to, by what stands on it.
struct Marker: Hashable, Sendable, CustomStringConvertible {
    let user: String
    let epoch: UInt64

    /// `<user>.<epoch>`, and whatever follows after another dot.
    init?(_ text: some StringProtocol) {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count >= 2, let epoch = UInt64(parts[1]) else { return nil }
        self.init(user: String(parts[0]), epoch: epoch)
    }

    init(user: String, epoch: UInt64) {
        self.user = user
        self.epoch = epoch
    }

    var description: String { "\(user)'s session \(epoch)" }
}

/// What somebody who looks at an app finds.
struct Sight: Sendable {
    /// The app's identifier.
    let app: String
    /// Whose data is in its directory.
    var files: Set<Marker> = []
    /// Whose data is on its screen.
    var screen: Marker?

    init(app: String, files: Set<Marker> = [], screen: Marker? = nil) {
        self.app = app
        self.files = files
        self.screen = screen
    }

    /// Looks at the app in `directory`.
    init(app: String, directory: String) {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory + "/data")) ?? []
        let screen = FileManager.default.contents(atPath: directory + "/screen") ?? Data()
        self.init(
            app: app,
            files: Set(names.compactMap { Marker($0) }),
            screen: Marker(String(decoding: screen, as: UTF8.self))
        )
    }

    /// All that is there of anybody.
    var traces: [(marker: Marker, place: String)] {
        files.sorted { $0.epoch < $1.epoch }.map { ($0, "files") } + (screen.map { [($0, "the screen")] } ?? [])
    }
}
