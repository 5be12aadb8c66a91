/// What an app shows of its user's data: rendered once, and kept until the data or the user changes.
package struct Display: Sendable, Equatable {
    /// How many items the user has.
    package var items: Int
    /// The lines below the header.
    package var lines: [String]

    package init(items: Int, lines: [String]) {
        self.items = items
        self.lines = lines
    }
}
