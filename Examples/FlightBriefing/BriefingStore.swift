import ExampleSupport
import FoundationEssentials
import SharedDevice

/// The briefings on disk: a folder for each crew member, an index, a cache of thumbnails, and a folder for data that is
/// being deleted.
struct BriefingStore: Sendable {
    /// The flights of each crew member.
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

    /// Removes the remains of a crash: half-written files, and folders whose deletion had begun.
    func prepare() throws {
        for path in [crew, thumbnails, tombstones] { try Files.makeDirectory(path) }
        try Files.removeContents(of: tombstones)
        let isPartial: (String) -> Bool = { $0.hasSuffix(Files.partialSuffix) }
        for path in [directory, thumbnails] { try Files.removeContents(of: path, where: isPartial) }
        for account in try Files.names(in: crew) { try Files.removeContents(of: folder(account), where: isPartial) }
    }

    func makeFolder(of account: String) throws { try Files.makeDirectory(folder(account)) }

    func flights(of account: String) throws -> [Flight] { try index().flights[account] ?? [] }

    /// The names of a crew member's files.
    func files(of account: String) throws -> [String] {
        try Files.names(in: folder(account)).filter { !$0.hasSuffix(Files.partialSuffix) }
    }

    /// Stores a briefing: its files first, then the index, so that every flight of the index has its files.
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

    /// Starts the file into which the chart of a flight is drawn, row by row.
    func startChart(of flight: Flight, for account: String) throws -> PartialFile {
        try PartialFile(completing: "\(folder(account))/\(Self.fileName(flight))-chart.bin")
    }

    func cacheThumbnail(_ bytes: [UInt8], of flight: Flight) throws {
        try Files.write(bytes, to: "\(thumbnails)/\(Self.fileName(flight)).ppm")
    }

    // MARK: Deleting

    /// Deletes all data of the account. A rename hides the folder from all parts of the app; then its files are deleted
    /// one by one. A crash in between leaves a tombstone, which the next start deletes.
    func erase(_ account: String) throws -> Files.Removed {
        let folder = folder(account)
        if try Files.names(in: crew).contains(account) {
            try Files.move(folder, to: "\(tombstones)/\(UUID().uuidString)")
        }
        var index = try index()
        if index.flights.removeValue(forKey: account) != nil { try write(index) }
        var removed = try Files.removeContents(of: tombstones)
        // The whole cache, so that no entry is overlooked. The app can recreate it.
        removed += try Files.removeContents(of: thumbnails)
        removed += try Files.removeContents(of: directory) { $0.hasSuffix(Files.partialSuffix) }
        return removed
    }

    private func index() throws -> Index {
        guard let data = try Files.read(indexPath) else { return Index() }
        return try JSONDecoder().decode(Index.self, from: data)
    }

    private func write(_ index: Index) throws { try Files.write(try JSONEncoder().encode(index), to: indexPath) }

    private static func fileName(_ flight: Flight) -> String {
        flight.number.split(separator: " ").joined().lowercased()
    }
}

/// The texts of one flight, made for one crew member.
struct Briefing: Sendable {
    let flight: Flight
    /// The crew member's signature, which is in each text.
    let signature: String

    var flightPlan: String {
        """
        OPERATIONAL FLIGHT PLAN \(flight.number)  \(flight.departure) - \(flight.destination)
        prepared for \(signature)
        FL 350  TRIP FUEL 4820 KG  ALTERNATE EDDM  RESERVE 1140 KG

        """
    }

    var weather: String {
        """
        \(flight.departure) 211150Z 24012KT 9999 FEW030 14/08 Q1019
        \(flight.destination) 211150Z 21008KT 8000 -RA BKN014 11/10 Q1014
        briefed: \(signature)

        """
    }

    var notes: String { "\(flight.number): fuel truck late, two wheelchairs. Noted by \(signature)\n" }

    /// The notes for the cabin's printer, which accepts only UTF-16.
    var notesForPrinter: [UInt8] {
        [0xFF, 0xFE] + notes.utf16.flatMap { [UInt8(truncatingIfNeeded: $0), UInt8(truncatingIfNeeded: $0 >> 8)] }
    }
}

/// A made-up flight. Equal indices give equal flights.
struct Flight: Codable, Sendable, Equatable {
    var number: String
    var departure: String
    var destination: String

    /// The `index`th flight of a crew member's day.
    init(_ index: Int) {
        let airports = ["EDDF", "LOWW", "LSZH", "EKCH", "EFHK", "ENGM"]
        number = "NC \(401 + 2 * index)"
        departure = airports[index % airports.count]
        destination = airports[(index + 1 + index / airports.count % 4) % airports.count]
    }
}

/// A chart of the route: heights on a grid, with the crew member's annotation, in the app's own binary form.
///
/// `CHRT`, width and height (16 bits each, little-endian), length of the annotation (16 bits), the annotation in UTF-8,
/// then one byte per cell, row by row.
struct Chart: Sendable {
    static let width = 256
    static let height = 192

    let seed: Int
    let annotation: String

    var header: [UInt8] {
        let text = Array(annotation.utf8)
        return Array("CHRT".utf8) + Self.bytes(Self.width) + Self.bytes(Self.height) + Self.bytes(text.count) + text
    }

    func row(_ row: Int) -> [UInt8] { (0..<Self.width).map { height(column: $0, row: row) } }

    /// A small picture of the chart: a portable pixmap, whose comment names the crew member.
    func thumbnail(comment: String) -> [UInt8] {
        let scale = 8
        let header = "P6\n# \(comment)\n\(Self.width / scale) \(Self.height / scale)\n255\n"
        var bytes = Array(header.utf8)
        for row in stride(from: 0, to: Self.height, by: scale) {
            for column in stride(from: 0, to: Self.width, by: scale) {
                let height = height(column: column, row: row)
                bytes += height < 90 ? [30, 60, 120 + height] : [height, 150, 60]
            }
        }
        return bytes
    }

    private func height(column: Int, row: Int) -> UInt8 {
        // Two crossing triangle waves make hills.
        func wave(_ value: Int, _ period: Int) -> Int { abs(value % period - period / 2) * 220 / period }
        return UInt8(clamping: wave(column * 3 + seed * 17, 200) + wave(row * 2 + column + seed * 31, 170))
    }

    private static func bytes(_ value: Int) -> [UInt8] {
        [UInt8(truncatingIfNeeded: value), UInt8(truncatingIfNeeded: value >> 8)]
    }
}
