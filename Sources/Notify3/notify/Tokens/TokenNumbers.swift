/// Gives out tokens, each number once, and tells which pages of the token table have no more use.
struct TokenNumbers: Sendable {
    private let tokensPerPage: CInt
    /// Darwin's first token is 2, and some code takes 0 for none.
    private var next: CInt = 2
    private var livePerPage: [CInt: Int] = [:]

    init(tokensPerPage: Int) { self.tokensPerPage = CInt(tokensPerPage) }

    /// The next token; `nil` after two thousand million.
    mutating func take() -> CInt? {
        guard next < .max else { return nil }
        defer { next += 1 }
        livePerPage[next / tokensPerPage, default: 0] += 1
        return next
    }

    /// Takes a token back.
    ///
    /// - Returns: whether no token of its page is alive or will be.
    mutating func end(_ token: CInt) -> Bool {
        let page = token / tokensPerPage
        guard let live = livePerPage[page] else { return false }
        livePerPage[page] = live - 1
        guard live == 1, next / tokensPerPage > page else { return false }
        livePerPage[page] = nil
        return true
    }

    /// Has ``take()`` give these numbers out again, if they are the last that it gave out and none of them is alive.
    mutating func takeBack(_ tokens: [CInt]) {
        guard let first = tokens.min(), tokens.count == Int(next - first), livePerPage.values.allSatisfy({ $0 == 0 })
        else {
            return
        }
        next = first
    }
}
