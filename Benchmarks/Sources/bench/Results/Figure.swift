/// One quantity of one contender, as measured over the rounds.
struct Figure: Equatable {
    let contender: String
    let unit: Unit
    let samples: Samples
}
