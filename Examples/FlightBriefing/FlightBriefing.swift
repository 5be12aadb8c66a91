import ArgumentParser
import ExampleSupport
import SharedDevice

@main
struct FlightBriefingCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "flight-briefing",
        abstract: "A crew member's briefing folder on a shared device: flight plan, weather, notes, chart.",
        discussion: "Takes commands on standard input, one a line:\n\(ExampleApp.commands)"
    )

    @OptionGroup var app: ExampleApp

    func run() async throws {
        try await app.run("flight-briefing", title: "Flight briefing") { BriefingWorkspace(directory: $0) }
    }
}

/// The briefing folder: files on disk, the list of flights in memory.
actor BriefingWorkspace: UserWorkspace {
    private let store: BriefingStore
    private var account: Account?
    private var flights: [Flight] = []

    init(directory: String) { store = BriefingStore(directory: directory) }

    func prepare() throws { try store.prepare() }

    func open(for account: Account) throws {
        try store.makeFolder(of: account.identifier)
        flights = try store.flights(of: account.identifier)
        self.account = account
    }

    func close() {
        account = nil
        flights = []
    }

    func display() throws -> Display {
        guard let account else { return Display(items: 0, lines: []) }
        let signature = DataMarker.signature(of: account)
        let names = try store.files(of: account.identifier)
        var lines = flights.suffix(4).map { "\($0.number)  \($0.departure) - \($0.destination)  for \(signature)" }
        lines.append("\(names.count) files, \(names.count { $0.hasSuffix("chart.bin") }) charts")
        return Display(items: flights.count, lines: lines)
    }

    func work() throws -> String {
        guard let account else { throw CancellationError() }
        let flight = Flight(flights.count)
        let briefing = Briefing(flight: flight, signature: DataMarker.signature(of: account))
        try store.add(briefing, of: account.identifier)
        flights.append(flight)
        return "received the briefing for \(flight.number)"
    }

    /// Draws the charts of the flights, row by row, the newest first, and starts over at the end, as for a radar
    /// picture.
    func workUntilCancelled() async throws -> String {
        var charts = 0
        while let account, !flights.isEmpty {
            let flight = flights[flights.count - 1 - charts % flights.count]
            if let row = try await draw(flight, for: account, revision: charts) {
                return "\(charts) charts drawn, \(flight.number) up to row \(row) of \(Chart.height)"
            }
            charts += 1
        }
        return "nothing under way"
    }

    /// Draws one chart. Returns the row at which the task was cancelled; `nil` if the chart is complete.
    private func draw(_ flight: Flight, for account: Account, revision: Int) async throws -> Int? {
        let signature = DataMarker.signature(of: account)
        let chart = Chart(seed: revision, annotation: "\(flight.number) \(signature)")
        try store.cacheThumbnail(chart.thumbnail(comment: signature), of: flight)
        let file = try store.startChart(of: flight, for: account.identifier)
        try file.append(chart.header)
        for row in 0..<Chart.height {
            guard !Task.isCancelled else { return row }
            try file.append(chart.row(row))
            // A cancellation ends the sleep at once.
            if row % 16 == 0 { try? await Task.sleep(for: .milliseconds(20)) }
        }
        try file.complete()
        return nil
    }

    func deleteData(of account: Account) throws -> String {
        "\(try store.erase(account.identifier)), thumbnails included"
    }
}
