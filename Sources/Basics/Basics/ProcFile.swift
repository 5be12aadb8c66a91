/// Files of `/proc` that hold numbers.
public enum ProcFile {
    /// Returns the numbers in each line of a file; `nil` if the file cannot be read. Reads at most 1 MiB.
    public static func lines(_ path: String) -> [[Int64]]? {
        guard let bytes = try? ReadableFile(path).prefix(1 << 20) else { return nil }
        return bytes.split(separator: UInt8(ascii: "\n")).map { line in
            line.split(separator: UInt8(ascii: " ")).compactMap { Int64(String(decoding: $0, as: UTF8.self)) }
        }
    }
}
