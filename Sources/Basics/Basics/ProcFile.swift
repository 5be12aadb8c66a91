import Glibc

/// Files of `/proc` that hold numbers.
public enum ProcFile {
    /// Returns the numbers in each line of a file; `nil` if the file cannot be opened. Reads at most about 1 MiB.
    public static func lines(_ path: String) -> [[Int64]]? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
            while bytes.count < 1 << 20 {
                let count = read(descriptor, buffer.baseAddress, buffer.count)
                guard count > 0 else { return }
                bytes += buffer[..<count]
            }
        }
        return bytes.split(separator: UInt8(ascii: "\n")).map { line in
            line.split(separator: UInt8(ascii: " ")).compactMap { Int64(String(decoding: $0, as: UTF8.self)) }
        }
    }
}
