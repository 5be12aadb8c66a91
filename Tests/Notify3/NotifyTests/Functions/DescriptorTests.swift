import Glibc
import NotifyCenterTestKit
import Testing
import notify

@Suite struct DescriptorTests {
    init() { ProcessBus.use() }

    /// The next token, as it is written: 4 bytes in network byte order.
    private func readToken(_ descriptor: Int32) -> Int32 {
        var bytes: Int32 = 0
        return read(descriptor, &bytes, 4) == 4 ? Int32(bigEndian: bytes) : -1
    }

    private func isReadable(_ descriptor: Int32, within milliseconds: Int32 = 0) -> Bool {
        var request = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&request, 1, milliseconds) == 1
    }

    // Rules, a.7, and CF-W5
    @Test func oneDescriptorServesSeveralTokensAndClosesWithTheLast() {
        let names = (uniqueName(), uniqueName())
        var (descriptor, first, second): (Int32, Int32, Int32) = (-1, -1, -1)
        #expect(status(notify_register_file_descriptor(names.0, &descriptor, 0, &first)) == NOTIFY_STATUS_OK)
        let original = descriptor
        #expect(
            status(notify_register_file_descriptor(names.1, &descriptor, NOTIFY_REUSE, &second)) == NOTIFY_STATUS_OK
        )
        #expect(descriptor == original)
        notify_post(names.1)
        #expect(readToken(descriptor) == second)
        notify_post(names.0)
        #expect(readToken(descriptor) == first)
        notify_cancel(first)
        #expect(fcntl(descriptor, F_GETFD) >= 0)
        notify_post(names.0)
        notify_post(names.1)
        #expect(readToken(descriptor) == second)
        var (before, after) = (stat(), stat())
        #expect(fstat(descriptor, &before) == 0)
        notify_cancel(second)
        // Another file may have the number by now.
        #expect(fstat(descriptor, &after) != 0 || after.st_ino != before.st_ino || after.st_dev != before.st_dev)
    }

    // Rules, a.9: the descriptor stays open when a reader is slow, and no token is forgotten.
    @Test func aFullDescriptorTakesEachTokenOnceMoreWhenThereIsRoom() async throws {
        // Private names, so that the posts cost no time on a bus.
        let names = ("self.\(uniqueName())", "self.\(uniqueName())")
        var (descriptor, busy, rare): (Int32, Int32, Int32) = (-1, -1, -1)
        notify_register_file_descriptor(names.0, &descriptor, 0, &busy)
        notify_register_file_descriptor(names.1, &descriptor, NOTIFY_REUSE, &rare)
        for _ in 0..<40_000 { notify_post(names.0) }
        notify_post(names.1)
        notify_post(names.0)
        var tokens: [Int32] = []
        while tokens.last != rare, isReadable(descriptor, within: 20_000) { tokens.append(readToken(descriptor)) }
        #expect(tokens.last == rare)
        #expect(tokens.allSatisfy { $0 == busy || $0 == rare })
        // The tokens that a pipe holds, and one for all that had no room.
        #expect(tokens.count < 20_000)
        while isReadable(descriptor) { _ = readToken(descriptor) }
        notify_post(names.0)
        #expect(isReadable(descriptor, within: 20_000))
        #expect(readToken(descriptor) == busy)
        notify_cancel(busy)
        notify_cancel(rare)
    }

    @Test func aForeignDescriptorIsNeitherUsedNorClosed() {
        var (descriptor, token): (Int32, Int32) = (0, -1)
        #expect(
            status(notify_register_file_descriptor(uniqueName(), &descriptor, NOTIFY_REUSE, &token))
                == NOTIFY_STATUS_INVALID_FILE
        )
        var port: mach_port_t = 0
        #expect(
            status(notify_register_mach_port(uniqueName(), &port, NOTIFY_REUSE, &token)) == NOTIFY_STATUS_INVALID_PORT
        )
        // The caller closes it, and another file gets the number.
        notify_register_file_descriptor(uniqueName(), &descriptor, 0, &token)
        let stranger = open("/dev/null", O_RDONLY | O_CLOEXEC)
        dup2(stranger, descriptor)
        var other: Int32 = -1
        #expect(
            status(notify_register_file_descriptor(uniqueName(), &descriptor, NOTIFY_REUSE, &other))
                == NOTIFY_STATUS_INVALID_FILE
        )
        notify_cancel(token)
        #expect(fcntl(descriptor, F_GETFD) >= 0)
        close(descriptor)
        close(stranger)
    }

    @Test func aPostToADescriptorThatTheCallerClosedIsHarmless() {
        let name = "self.\(uniqueName())"
        var (descriptor, token): (Int32, Int32) = (-1, -1)
        notify_register_file_descriptor(name, &descriptor, 0, &token)
        close(descriptor)
        // Without a reader, writing would raise SIGPIPE.
        #expect(status(notify_post(name)) == NOTIFY_STATUS_OK)
        #expect(status(notify_cancel(token)) == NOTIFY_STATUS_OK)
    }

    @Test func aPortIsADescriptor() {
        let name = uniqueName()
        var (port, token): (mach_port_t, Int32) = (0, -1)
        #expect(status(notify_register_mach_port(name, &port, 0, &token)) == NOTIFY_STATUS_OK)
        notify_post(name)
        #expect(readToken(Int32(port)) == token)
        notify_cancel(token)
    }
}
