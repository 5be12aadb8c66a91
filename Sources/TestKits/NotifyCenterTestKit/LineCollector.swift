import DBusTransport
import Foundation
import Glibc
import Synchronization

/// Collects the lines that arrive on a descriptor, on a thread of its own, until the other side closes.
final class LineCollector: Sendable {
    private struct State {
        var pending: [UInt8] = []
        var lines: [String] = []
        var isComplete = false
    }

    private let state = Locked(State())

    /// Takes the descriptor over.
    init(_ descriptor: CInt) {
        Thread.detachNewThread { [self] in
            var buffer = [UInt8](repeating: 0, count: 65_536)
            while true {
                let count = read(descriptor, &buffer, buffer.count)
                if count > 0 {
                    take(buffer[..<count])
                } else if count == 0 || errno != EINTR {
                    break
                }
            }
            close(descriptor)
            end()
        }
    }

    /// The lines so far, the last one also where it has no end, once it is complete.
    var lines: [String] { state.withLock { $0.lines } }
    /// Whether nothing more comes.
    var isComplete: Bool { state.withLock { $0.isComplete } }

    private func take(_ bytes: ArraySlice<UInt8>) {
        state.withLock { state in
            state.pending += bytes
            while let end = state.pending.firstIndex(of: UInt8(ascii: "\n")) {
                state.lines.append(String(decoding: state.pending[..<end], as: UTF8.self))
                state.pending.removeFirst(end + 1)
            }
        }
    }

    private func end() {
        state.withLock { state in
            if !state.pending.isEmpty { state.lines.append(String(decoding: state.pending, as: UTF8.self)) }
            state.pending = []
            state.isComplete = true
        }
    }
}
