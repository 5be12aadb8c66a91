import ExampleSupport
import FoundationEssentials
import SharedDevice

/// The briefings on disk: a folder for each crew member, and beside them an index, a cache of thumbnails, and the remains of
/// what is being deleted.
struct BriefingStore: Sendable {
    /// Which briefings a crew member has.
    private struct Index: Codable {
        var flights: [String: [Flight]] = [:]
    }

    private let directory: String

    init(directory: String) { self.directory = directory }

    private var indexPath: String { "\(directory)/index.json" }
    private var crew: String { "\(directory)/crew" }
    private var thumbnails: String { "\(directory)/cache/thumbnails" }
    private var tombstones: String { "\(directory)/tombstones" }

    private func folder(_ account: String) -> String { "\(crew)/\(account)" }

    // MARK: Keeping

    /// Removes what a crash left: half written files, and folders whose deletion had begun.
    func prepare() throws {
        for path in [crew, thumbnails, tombstones] { try Files.makeDirectory(path) }
        try Files.removeContents(of: tombstones)
        let isPartial: (String) -> Bool = { $0.hasSuffix(Files.partialSuffix) }
        for path in [directory, thumbnails] { try Files.removeContents(of: path, where: isPartial) }
        for account in try Files.names(in: crew) { try Files.removeContents(of: folder(account), where: isPartial) }
    }

    func makeFolder(of account: String) throws { try Files.makeDirectory(folder(account)) }

    func flights(of account: String) throws -> [Flight] { try index().flights[account] ?? [] }

    /// The sizes of a crew member's files.
    func files(of account: String) throws -> [String] {
        try Files.names(in: folder(account)).filter { !$0.hasSuffix(Files.partialSuffix) }
    }

    /// Stores a briefing: its files first, then the index, so that the index names nothing that is not there.
    func add(_ briefing: Briefing, of account: String) throws {
        let name = Self.fileName(briefing.flight)
        let folder = folder(account)
        try Files.write(Array(briefing.flightPlan.utf8), to: "\(folder)/\(name)-flight-plan.txt")
        try Files.write(Array(briefing.weather.utf8), to: "\(folder)/\(name)-weather.txt")
        try Files.write(Array(briefing.notes.utf8), to: "\(folder)/\(name)-notes.txt")
        try Files.write(briefing.notesForPrinter, to: "\(folder)/\(name)-notes-print.txt")
        var index = try index()
        index.flights[account, default: []].append(briefing.flight)
        try write(index)
    }

    /// Where the chart of a flight is drawn, bit by bit.
    func startChart(of flight: Flight, for account: String) throws -> PartialFile {
        try PartialFile(completing: "\(folder(account))/\(Self.fileName(flight))-chart.bin")
    }

    func cacheThumbnail(_ bytes: [UInt8], of flight: Flight) throws {
        try Files.write(bytes, to: "\(thumbnails)/\(Self.fileName(flight)).ppm")
    }

    // MARK: Deleting

    /// Deletes all that is the account's. The folder goes in two steps: one rename, after which no part of the app finds it,
    /// and then file by file; a crash between leaves a tombstone, which goes at the next start.
    func erase(_ account: String) throws -> Files.Removed {
        let folder = folder(account)
        if try Files.names(in: crew).contains(account) {
            try Files.move(folder, to: "\(tombstones)/\(UUID().uuidString)")
        }
        var index = try index()
        if index.flights.removeValue(forKey: account) != nil { try write(index) }
        var removed = try Files.removeContents(of: tombstones)
        // The whole cache: it can be made again, and so no entry is overlooked.
        removed += try Files.removeContents(of: thumbnails)
        removed += try Files.removeContents(of: directory) { $0.hasSuffix(Files.partialSuffix) }
        return removed
    }

    private func index() throws -> Index {
        guard let data = try Files.read(indexPath) else { return Index() }
        return try JSONDecoder().decode(Index.self, from: data)
    }

    private func write(_ index: Index) throws {
        try Files.write(try JSONEncoder().encode(index), to: indexPath)
    }

    private static func fileName(_ flight: Flight) -> String {
        flight.number.split(separator: " ").joined().lowercased()
    }
}
