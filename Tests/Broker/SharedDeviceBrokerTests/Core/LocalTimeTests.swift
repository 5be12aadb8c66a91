import DeviceConfiguration
import DeviceStorage
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@testable import BrokerCore

@Suite("The device's local time")
struct LocalTimeTests {
    private static func time(_ zone: TimeZone) -> LocalTime { LocalTime { zone.secondsFromGMT(for: $0) } }

    @Test(
        "a clock time maps to the first instant that shows it, or to the end of its gap",
        arguments: [
            // Berlin; half an hour of summer time; changes at midnight; a skipped day.
            ("Europe/Berlin", 2026), ("Australia/Lord_Howe", 2026), ("America/Sao_Paulo", 2018), ("Pacific/Apia", 2011),
            ("Asia/Kathmandu", 2026), ("UTC", 2026),
        ]
    )
    func instants(zone: String, year: Int) throws {
        let zone = try #require(TimeZone(identifier: zone))
        let time = Self.time(zone)
        let start = try #require(try? Date("\(year)-01-01T00:00:00Z", strategy: .iso8601))
        for minutes in stride(from: 0, to: 366 * 24 * 60, by: 15) {
            let clock = start.addingTimeInterval(Double(minutes * 60))
            let instant = time.instant(ofClock: clock)
            if time.clock(at: instant) == clock {
                let isFirst = [900.0, 1800, 3600].allSatisfy {
                    time.clock(at: instant.addingTimeInterval(-$0)) != clock
                }
                if !isFirst { Issue.record("the clock shows \(clock) before that") }
            } else {
                let before = time.clock(at: instant.addingTimeInterval(-1))
                if !(before < clock && clock < time.clock(at: instant)) { Issue.record("\(clock) is in no gap there") }
            }
        }
    }

    @Test("the command line and the screen use the time zone in TZ")
    func device() async throws {
        let directory = try TemporaryDirectory()
        let midnight = try #require(try? Date("2026-06-30T22:00:00Z", strategy: .iso8601))
        try DeviceDatabase(directory: directory.state, firstEpoch: 0).append([
            AuditEntry(event: .modeChanged, at: midnight.addingTimeInterval(-1), detail: "before"),
            AuditEntry(event: .modeChanged, at: midnight, detail: "midnight"),
        ])
        let outcome = try await Program.sharedDevice.run(
            ["log", "--state", directory.state, "--since", "2026-07-01"],
            environment: ["TZ": "CET-1CEST,M3.5.0,M10.5.0/3"]
        )
        #expect(outcome.status == 0, "\(outcome.errors)")
        #expect(outcome.output.contains("2026-07-01 00:00:00") && !outcome.output.contains("before"))
    }
}
