import Glibc

/// Runs a target with one input. It must return for every input, however malformed; a trap or a failed precondition is
/// a finding.
typealias FuzzTarget = @Sendable (_ input: [UInt8]) -> Void

private let targets: [String: FuzzTarget] = [
    "notifications": fuzzNotifications,
    "reports": fuzzReports,
    "frames": fuzzFrames,
    "json": fuzzJSON,
    "http": fuzzHTTPRequests,
    "tokens": fuzzTokens,
    "metadata": fuzzProviderMetadata,
    "configuration": fuzzConfiguration,
    "profiles": fuzzProfiles,
    "fleet": fuzzFleet,
]

/// Chosen by the environment, because libFuzzer reads the arguments.
private let chosen: FuzzTarget = {
    let name = getenv("FUZZ_TARGET").map { String(cString: $0) } ?? ""
    guard let target = targets[name] else {
        print("fuzz: FUZZ_TARGET is “\(name)”; set it to one of: \(targets.keys.sorted().joined(separator: " "))")
        exit(2)
    }
    return target
}()

@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    chosen(Array(UnsafeBufferPointer(start: start, count: count)))
    return 0
}
