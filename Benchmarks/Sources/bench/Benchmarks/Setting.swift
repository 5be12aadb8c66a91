/// What the benchmarks run with: one bus, the programs, and how much to do.
struct Setting {
    let bus: PrivateBus
    let programs: Programs
    let isQuick: Bool
    let progress: Progress

    /// The peer that everything is compared with.
    var baseline: Contender { programs.libdbus }

    /// The peer under test.
    var subject: Contender { programs.subject }

    /// `full` rounds, or a fifth of them, three at least, in a quick run.
    func rounds(_ full: Int) -> Int {
        isQuick ? max(3, full / 5) : full
    }

    /// Starts a peer and waits until it is ready. Throws as `Peer` does.
    func start(_ contender: Contender, _ role: String...) throws(BenchmarkError) -> Peer {
        let peer = try Peer(contender, role, on: bus)
        try peer.waitUntilReady()
        return peer
    }
}
