import ArgumentParser
import ExampleSupport
import FoundationEssentials
import SharedDevice

@main
struct FieldServiceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "field-service",
        abstract: "A technician's work list on a shared device: jobs, photos and what is to be sent.",
        discussion: "Takes commands on standard input, one a line:\n\(ExampleApp.commands)"
    )

    @OptionGroup var app: ExampleApp

    func run() async throws {
        try await app.run("field-service", title: "Field service") { FieldServiceWorkspace(directory: $0) }
    }
}

/// The work list: JSON and photos on disk, the jobs in memory.
actor FieldServiceWorkspace: UserWorkspace {
    private let store: FieldServiceStore
    private var account: Account?
    private var list = WorkList()

    init(directory: String) { store = FieldServiceStore(directory: directory) }

    func prepare() throws { try store.prepare() }

    func open(for account: Account) throws {
        list = try store.list()
        self.account = account
    }

    func close() {
        account = nil
        list = WorkList()
    }

    func display() throws -> Display {
        guard let account else { return Display(items: 0, lines: []) }
        let jobs = list.jobs[account.identifier] ?? []
        var lines = jobs.suffix(4).map { "\($0.machine) for \($0.customer): \($0.report)" }
        lines.append("\(try store.waiting(of: account.identifier)) reports wait to be sent")
        lines.append("\(list.machines.count) machines in the depot's care")
        return Display(items: jobs.count, lines: lines)
    }

    func work() throws -> String {
        guard let account else { throw CancellationError() }
        let number = list.jobs[account.identifier]?.count ?? 0
        let signature = DataMarker.signature(of: account)
        let job = WorkList.Job(
            machine: list.machines[number % list.machines.count],
            customer: ["Harbour Board", "City Hospital", "Opera House"][number % 3],
            report: "repaired by \(signature)",
            photos: ["\(UUID().uuidString).png"]
        )
        let photo = Self.photo(seed: number, of: signature)
        try store.add(job, photo: photo, sender: signature, of: account.identifier)
        list.jobs[account.identifier, default: []].append(job)
        return "finished \(job.machine), with a photo of \(photo.count) bytes"
    }

    /// Develops a large photo of the last job, piece by piece, and then a better one.
    func workUntilCancelled() async throws -> String {
        guard let account else { return "nothing under way" }
        let signature = DataMarker.signature(of: account)
        var photos = 0
        while true {
            let photo = Self.photo(seed: 100 + photos, of: signature)
            let name = "\(UUID().uuidString).png"
            let file = try store.startPhoto(name)
            for start in stride(from: 0, to: photo.count, by: 4096) {
                guard !Task.isCancelled else {
                    return "\(photos) photos developed, one up to byte \(start) of \(photo.count)"
                }
                try file.append(Array(photo[start..<min(start + 4096, photo.count)]))
                // A cancellation ends the sleep at once.
                try? await Task.sleep(for: .milliseconds(20))
            }
            try file.complete()
            try store.attach(name, of: account.identifier)
            photos += 1
        }
    }

    func deleteData(of account: Account) throws -> String {
        "\(try store.erase(account.identifier)), photos and outbox included"
    }

    /// A striped picture that names the person who took it.
    private static func photo(seed: Int, of author: String) -> [UInt8] {
        let (width, height) = (160, 120)
        var pixels: [UInt8] = []
        pixels.reserveCapacity(width * height * 3)
        for row in 0..<height {
            for column in 0..<width {
                let stripe = UInt8((column + seed * 13) / 16 % 2 * 90)
                pixels += [120 + stripe, UInt8(80 + row), UInt8(truncatingIfNeeded: 200 - row - Int(stripe))]
            }
        }
        return PNGImage(width: width, height: height, pixels: pixels, text: ("Author", author)).file
    }
}
