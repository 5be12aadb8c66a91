import Glibc

/// Reads tokens off a descriptor of notify(3): four bytes each, in network byte order.
struct TokenReader {
    /// What was read of a token whose rest is to come.
    private var pending: [UInt8] = []

    /// The tokens that are there; `nil` where no more will ever come. To be called when the descriptor is readable.
    mutating func read(_ descriptor: CInt) -> [CInt]? {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = Glibc.read(descriptor, &buffer, buffer.count)
        guard count > 0 else { return count < 0 && (errno == EINTR || errno == EAGAIN) ? [] : nil }
        return take(buffer[..<count])
    }

    /// The tokens that these bytes complete.
    mutating func take(_ bytes: some Collection<UInt8>) -> [CInt] {
        pending += bytes
        let complete = pending.count / 4 * 4
        let tokens = stride(from: 0, to: complete, by: 4).map { start in
            CInt(bitPattern: pending[start..<start + 4].reduce(0 as UInt32) { $0 << 8 | UInt32($1) })
        }
        pending.removeFirst(complete)
        return tokens
    }
}
