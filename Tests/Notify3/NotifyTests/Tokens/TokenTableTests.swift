import CNotify
import Testing

@testable import notify

@Suite struct TokenTableTests {
    // High numbers, because other suites use the first tokens of the process's table.
    private static let first: CInt = 1 << 30

    @Test func aTokenSeesEachCountOnceAndOtherNumbersAreInvalid() throws {
        var pool = PostCounterPool()
        let counter = pool.take()
        let token = Self.first
        func check() -> Bool? { TokenTable.check(token) }
        #expect(check() == nil && !TokenTable.isValid(token))
        let isInserted = TokenTable.insert(token, counter)
        #expect(isInserted && TokenTable.isValid(token))
        #expect([check(), check()] == [true, false])
        counter.increment()
        counter.increment()
        #expect(TokenTable.count(token) == 3)
        #expect([check(), check()] == [true, false])
        TokenTable.forgetSeen(token)
        #expect(check() == true)
        TokenTable.remove(token)
        #expect(check() == nil && TokenTable.count(token) == nil)
        for number in [-1, -2, CInt.min, 0, CInt.max] {
            #expect(TokenTable.check(number) == nil && !TokenTable.isValid(number), "\(number)")
            TokenTable.remove(number)
            TokenTable.forgetSeen(number)
        }
    }

    @Test func aCounterOfManyTokensIsReadByEachAndNotOnADiscardedPage() {
        var pool = PostCounterPool()
        let counter = pool.take()
        // The range crosses a boundary of pages and of chunks.
        let tokens = (Self.first + 65_536 - 600)..<(Self.first + 65_536 + 600)
        #expect(tokens.allSatisfy { TokenTable.insert($0, counter) })
        #expect(tokens.allSatisfy { TokenTable.check($0) == true })
        #expect(tokens.allSatisfy { TokenTable.check($0) == false })
        counter.increment()
        #expect(tokens.allSatisfy { TokenTable.check($0) == true })
        for token in tokens { TokenTable.remove(token) }
        #expect(tokens.allSatisfy { !TokenTable.isValid($0) })
        let page = Self.first + 1 << 20
        let next = page + CInt(TokenTable.tokensPerPage)
        #expect(TokenTable.insert(page, counter) && TokenTable.insert(next, counter))
        TokenTable.discardPage(of: page + 3)
        #expect(TokenTable.check(page) == nil && TokenTable.check(next) == true)
        TokenTable.remove(next)
    }

    @Test func aPageEndsWithTheLastOfItsTokens() throws {
        var numbers = TokenNumbers(tokensPerPage: 4)
        let tokens = (0..<8).compactMap { _ in numbers.take() }
        // Rules, a.6: the first is 2.
        #expect(tokens == Array(2...9))
        // 2 and 3 are on the first page, 4 to 7 on the second, 8 and 9 on the page in use.
        let ends = [3, 2, 4, 5, 6, 7, 9, 8].map { numbers.end($0) }
        #expect(ends == [false, true, false, false, false, true, false, false])
        let unknown = numbers.end(2)
        #expect(!unknown)
        let next = numbers.take()
        #expect(next == 10)
    }
}
