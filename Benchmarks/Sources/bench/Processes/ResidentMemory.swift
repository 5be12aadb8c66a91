/// A process's memory as the kernel accounts for it, in bytes.
struct ResidentMemory: Equatable {
    /// Every resident page, those of shared libraries in full.
    let resident: Int
    /// Pages that no other process has: what one more such process costs.
    let own: Int

    /// Reads the text of `/proc/PID/smaps_rollup`. `nil` where one of its lines is missing.
    init?(smapsRollup text: String) {
        var kilobytes: [Substring: Int] = [:]
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 3, words[2] == "kB", let value = Int(words[1]) else { continue }
            kilobytes[words[0]] = value
        }
        guard let resident = kilobytes["Rss:"], let clean = kilobytes["Private_Clean:"],
            let dirty = kilobytes["Private_Dirty:"]
        else { return nil }
        self.resident = resident * 1024
        own = (clean + dirty) * 1024
    }

    /// Throws `.systemCall` where the kernel does not tell.
    static func of(_ process: Int32) throws(BenchmarkError) -> ResidentMemory {
        let path = "/proc/\(process)/smaps_rollup"
        guard let text = readText(path), let memory = ResidentMemory(smapsRollup: text) else {
            throw BenchmarkError(.systemCall, "\(path) cannot be read, or has no Rss and Private lines")
        }
        return memory
    }
}
