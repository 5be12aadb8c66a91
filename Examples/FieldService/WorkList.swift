/// The depot's work list: its machines, and the jobs of whoever is signed in.
struct WorkList: Codable, Sendable {
    /// One visit.
    struct Job: Codable, Sendable {
        var machine: String
        var customer: String
        var report: String
        /// The names of its photos.
        var photos: [String]
    }

    /// What the depot looks after. It belongs to nobody who signs in.
    var machines = ["Lift 7", "Pump station North", "Escalator C", "Cooling tower 2", "Gate 14"]
    /// By account identifier.
    var jobs: [String: [Job]] = [:]

    /// The photos that any job names.
    var photos: Set<String> { Set(jobs.values.joined().flatMap(\.photos)) }
}
