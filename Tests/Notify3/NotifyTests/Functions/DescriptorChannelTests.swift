import Glibc
import NotifyCenterTestKit
import Testing

@testable import notify

@Suite("A descriptor whose pipe is full")
struct DescriptorChannelTests {
    @Test("an ended token is not written; if it returns, it is written at its new place")
    func endedTokens() throws {
        let channel = try #require(DescriptorChannel())
        let tokens = CInt(0)..<20_000
        for token in tokens { channel.notify(token) }
        // The last token waits, and the second last ends and returns.
        for token in tokens.dropLast() { channel.end(token) }
        channel.notify(tokens.upperBound - 2)
        var read: [CInt] = []
        while read.last != tokens.upperBound - 2, let token = next(channel.descriptor) { read.append(token) }
        #expect(read.suffix(2) == [tokens.upperBound - 1, tokens.upperBound - 2])
        #expect(read.dropLast(2).elementsEqual(tokens.prefix(read.count - 2)))
    }

    /// Returns the next token; `nil` if none arrives for a long time.
    private func next(_ descriptor: CInt) -> CInt? {
        var entry = pollfd(fd: descriptor, events: CShort(POLLIN), revents: 0)
        var token: CInt = 0
        guard poll(&entry, 1, 60_000) == 1, Glibc.read(descriptor, &token, 4) == 4 else { return nil }
        return CInt(bigEndian: token)
    }
}
