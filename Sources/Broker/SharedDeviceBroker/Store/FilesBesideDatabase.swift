package import BrokerCore
// For `timespec`: if one file of a module imports CLinux, the compiler takes the type from there.
import CLinux
import DeviceConfiguration
import DeviceStorage
package import FoundationEssentials
import Glibc

// Data that has to be written without a transaction is in separate files next to the database.

/// Notes a sign-out twice: on the disk, and in memory in case the disk is stalled.
package struct SignOutNotes: Sendable {
    private let reserve: SignOutReserve
    /// `nil` if no directory was named, or if the file cannot be created.
    private let memory: SignOutReserve?

    init(beside database: String, runtimeDirectory: String?) throws(StoreError) {
        reserve = try SignOutReserve(path: database + ".signed-out")
        // A second safety net: the broker also starts without it.
        memory = runtimeDirectory.flatMap { try? SignOutReserve(path: $0 + "/signed-out") }
    }

    /// Notes on the disk that there is no account, before a transaction does. Returns the reason if that fails.
    @discardableResult
    package func note(_ state: DeviceState, at date: Date) -> String? { reserve.note(state, at: date) }

    package func noteInMemory(_ state: DeviceState, at date: Date) { _ = memory?.note(state, at: date) }

    /// The event that may undo a sign-out that is not noted on the disk, for the log.
    package var undoing: String { "a start of the \(memory == nil ? "broker" : "device") may undo it" }

    func sync() { reserve.sync() }

    /// The latest note, if it is newer than the last transaction.
    func latest(after epoch: UInt64) -> (state: DeviceState, date: Date)? {
        [reserve.noted, memory?.noted].compactMap(\.self)
            .filter { $0.state.epoch > epoch }
            .max { $0.state.epoch < $1.state.epoch }
    }
}

/// A small file of fixed length that notes a state without an account before all apps are told: a broker killed before
/// its transaction would restore the session. It is overwritten in place, so it also works on a full disk.
struct SignOutReserve: Sendable {
    private static let length = 4096
    private let path: String

    /// Creates the file if it is missing or too short.
    init(path: String) throws(StoreError) {
        self.path = path
        _ = try PrivateFiles.prepareFile(path, create: true)
        var information = stat()
        guard stat(path, &information) == 0, information.st_size < Self.length else { return }
        guard write([UInt8](repeating: 0, count: Self.length)) else {
            throw StoreError(system: errno, attempted: "keep space for a sign-out in \(path)")
        }
        sync()
    }

    var noted: (state: DeviceState, date: Date)? {
        guard let data = FileManager.default.contents(atPath: path) else { return nil }
        let words = String(decoding: data.prefix { $0 != 0 }, as: UTF8.self).split(separator: " ")
        guard words.count == 4, words[0] == "nobody", let epoch = UInt64(words[1]),
            let mode = ManagedMode(rawValue: String(words[2])),
            let date = Double(words[3]).flatMap({ Date(.real($0)) })
        else { return nil }
        return (DeviceState(mode: mode, account: nil, epoch: epoch), date)
    }

    /// On return every later process sees the note; a power cut may lose it. Returns the reason if it cannot be
    /// written.
    func note(_ state: DeviceState, at date: Date) -> String? {
        let text = Array("nobody \(state.epoch) \(state.mode.rawValue) \(date.timeIntervalSince1970)".utf8)
        let isWritten = write(text + [UInt8](repeating: 0, count: Self.length - text.count))
        return isWritten ? nil : "\(path): \(String(cString: strerror(errno)))"
    }

    /// Flushes the note to the disk, if the disk accepts writes.
    func sync() { _ = onFile { fdatasync($0) == 0 } }

    private func write(_ bytes: [UInt8]) -> Bool { onFile { pwrite($0, bytes, bytes.count, 0) == bytes.count } }

    private func onFile(_ body: (CInt) -> Bool) -> Bool {
        let file = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW)
        guard file >= 0 else { return false }
        defer { close(file) }
        return body(file)
    }
}

/// Remembers across restarts when the device was last used, as the time stamp of an empty file. A power cut loses the
/// last seconds, so the automatic sign-out comes a little early.
struct ActivityFile: Sendable {
    private let path: String

    init(directory: String) { path = "\(directory)/last-activity" }

    /// `nil` if it is unknown.
    var date: Date? {
        var information = stat()
        guard lstat(path, &information) == 0 else { return nil }
        let stamp = information.st_mtim
        return Date(timeIntervalSince1970: Double(stamp.tv_sec) + Double(stamp.tv_nsec) / 1e9)
    }

    /// - Returns: The reason if it cannot be written, for the log.
    func write(_ date: Date) -> String? {
        let file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard file >= 0 else { return "\(path): \(String(cString: strerror(errno)))" }
        defer { close(file) }
        let seconds = date.timeIntervalSince1970.rounded(.down)
        let rest = Int((date.timeIntervalSince1970 - seconds) * 1e9)
        let stamp = timespec(tv_sec: Int(seconds), tv_nsec: rest)
        guard futimens(file, [stamp, stamp]) == 0 else { return "\(path): \(String(cString: strerror(errno)))" }
        return nil
    }
}
