import DBus
@_spi(Extensions) import SharedDevice
import Testing

@testable import SharedDeviceBroker

@Suite("Responses that are shared by many callers")
struct KnownAnswersTests {
    private func answer(_ epoch: UInt64, owing sessions: Int = 0) -> BrokerProtocol.Fields {
        SessionAnswer(
            session: DeviceSession(account: nil, epoch: epoch),
            owed: (0..<UInt64(sessions)).map { OwedSession(epoch: $0, account: nil) }
        ).fields
    }

    @Test("a response is encoded once, from its second use on, for equal content")
    func equal() throws {
        var known = KnownAnswers()
        let unknown = known.answer(answer(1), of: .getCurrentAccount)
        #expect(unknown == nil)
        let (first, again) = (
            known.answer(answer(1), of: .getCurrentAccount), known.answer(answer(1), of: .reportCleanup)
        )
        #expect(first != nil && first === again)
        let other = known.answer(answer(2), of: .getCurrentAccount)
        #expect(other == nil)
        let second = known.answer(answer(2), of: .getCurrentAccount)
        #expect(second != nil && second !== first)
        let still = known.answer(answer(1), of: .getCurrentAccount)
        #expect(still === first)
    }

    @Test("only a few short responses of suitable methods are kept")
    func bounds() {
        var known = KnownAnswers()
        for epoch in 1...5 { _ = known.answer(answer(UInt64(epoch)), of: .getCurrentAccount) }
        let newest = known.answer(answer(5), of: .getCurrentAccount)
        #expect(newest != nil)
        let oldest = known.answer(answer(1), of: .getCurrentAccount)
        #expect(oldest == nil, "four later responses have replaced it")
        for _ in 1...3 {
            let (long, round) = (
                known.answer(answer(9, owing: 17), of: .getCurrentAccount), known.answer(answer(9), of: .getRound)
            )
            #expect(long == nil && round == nil)
        }
    }
}
