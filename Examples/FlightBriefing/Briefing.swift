import FoundationEssentials

/// What is in the folder of one flight, made for one crew member.
struct Briefing: Sendable {
    let flight: Flight
    /// The crew member, as all of it says.
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

    /// The notes for the cabin's printer, which takes UTF-16 only.
    var notesForPrinter: [UInt8] {
        [0xFF, 0xFE] + notes.utf16.flatMap { [UInt8(truncatingIfNeeded: $0), UInt8(truncatingIfNeeded: $0 >> 8)] }
    }
}
