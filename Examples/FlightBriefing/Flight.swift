/// A flight that a crew member is briefed for. Made up, and the same for the same number.
struct Flight: Codable, Sendable, Equatable {
    var number: String
    var departure: String
    var destination: String

    /// The `index`th flight of somebody's day.
    init(_ index: Int) {
        let airports = ["EDDF", "LOWW", "LSZH", "EKCH", "EFHK", "ENGM"]
        number = "NC \(401 + 2 * index)"
        departure = airports[index % airports.count]
        destination = airports[(index + 1 + index / airports.count % 4) % airports.count]
    }
}
