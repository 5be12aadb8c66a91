import Glibc

/// What the figures were measured on.
struct Machine: Encodable, CustomStringConvertible {
    let processors: Int
    let processor: String
    let kernel: String

    static func current() -> Machine {
        let description = readText("/proc/cpuinfo") ?? ""
        let model = description.split(separator: "\n").first { $0.hasPrefix("model name") }
        let name = model?.split(separator: ":", maxSplits: 1).last.map { $0.drop { $0 == " " } }
        let release = readText("/proc/sys/kernel/osrelease") ?? "unknown\n"
        return Machine(
            processors: Int(sysconf(Int32(_SC_NPROCESSORS_ONLN))),
            processor: name.map(String.init) ?? "unknown processor",
            kernel: String(release.prefix { $0 != "\n" })
        )
    }

    var description: String { "\(processors) × \(processor), Linux \(kernel)" }
}
