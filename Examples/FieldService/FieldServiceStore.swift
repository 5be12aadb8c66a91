import ExampleSupport
import FoundationEssentials

/// The app's files: the work list, a folder with the photos of its jobs, and an outbox for each account.
struct FieldServiceStore: Sendable {
    /// A finished job that has not been sent to the office yet.
    struct Report: Codable, Sendable {
        var job: WorkList.Job
        var sender: String
    }

    private let directory: String

    init(directory: String) { self.directory = directory }

    private var listPath: String { "\(directory)/work-list.json" }
    private var photos: String { "\(directory)/photos" }

    private func outbox(_ account: String) -> String { "\(directory)/outbox/\(account)" }

    // MARK: Keeping

    /// Removes half-written files of a crash, and photos without a job: the crash came before their job was stored.
    func prepare() throws {
        try Files.makeDirectory(photos)
        let isPartial: (String) -> Bool = { $0.hasSuffix(Files.partialSuffix) }
        try Files.removeContents(of: directory, where: isPartial)
        for account in try Files.names(in: "\(directory)/outbox") {
            try Files.removeContents(of: outbox(account), where: isPartial)
        }
        try removeOrphans(list())
    }

    func list() throws -> WorkList {
        guard let data = try Files.read(listPath) else { return WorkList() }
        return try JSONDecoder().decode(WorkList.self, from: data)
    }

    func waiting(of account: String) throws -> Int { try Files.names(in: outbox(account)).count }

    /// Stores a finished job: photo, outbox, and last the list that names them.
    func add(_ job: WorkList.Job, photo: [UInt8], sender: String, of account: String) throws {
        guard let name = job.photos.first else { return }
        try Files.write(photo, to: "\(photos)/\(name)")
        try Files.makeDirectory(outbox(account))
        let report = try JSONEncoder().encode(Report(job: job, sender: sender))
        try Files.write(report, to: "\(outbox(account))/\(name).json")
        var list = try list()
        list.jobs[account, default: []].append(job)
        try write(list)
    }

    /// Starts the file into which a photo is developed, piece by piece.
    func startPhoto(_ name: String) throws -> PartialFile { try PartialFile(completing: "\(photos)/\(name)") }

    /// Gives the account's last job a large photo, which replaces the previous one.
    func attach(_ name: String, of account: String) throws {
        var list = try list()
        guard let last = list.jobs[account]?.indices.last else { return }
        list.jobs[account]?[last].photos[1...] = [name]
        try write(list)
        try removeOrphans(list)
    }

    // MARK: Deleting

    /// Deletes all data of the account. Its jobs leave the list first. Photos that the list no longer names are
    /// orphans, which are deleted now or, after a crash, at the next start.
    func erase(_ account: String) throws -> Files.Removed {
        var list = try list()
        if list.jobs.removeValue(forKey: account) != nil { try write(list) }
        var removed = try Files.remove(outbox(account))
        removed += try removeOrphans(list)
        removed += try Files.removeContents(of: directory) { $0.hasSuffix(Files.partialSuffix) }
        return removed
    }

    @discardableResult
    private func removeOrphans(_ list: WorkList) throws -> Files.Removed {
        let named = list.photos
        return try Files.removeContents(of: photos) { !named.contains($0) }
    }

    private func write(_ list: WorkList) throws { try Files.write(try JSONEncoder().encode(list), to: listPath) }
}

/// The depot's work list: its machines, and the jobs of each technician.
struct WorkList: Codable, Sendable {
    struct Job: Codable, Sendable {
        var machine: String
        var customer: String
        var report: String
        /// The file names of the job's photos.
        var photos: [String]
    }

    /// The machines that the depot maintains. They belong to the depot, and are never deleted.
    var machines = ["Lift 7", "Pump station North", "Escalator C", "Cooling tower 2", "Gate 14"]
    /// By account identifier.
    var jobs: [String: [Job]] = [:]

    /// The file names of all jobs' photos.
    var photos: Set<String> { Set(jobs.values.joined().flatMap(\.photos)) }
}
