import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing
import notify

@Suite struct DescriptorTests {
    init() { ProcessBus.use() }

    @Test func aForeignDescriptorIsNeitherUsedNorClosed() {
        var (descriptor, token, other): (Int32, Int32, Int32) = (-1, -1, -1)
        // The caller's descriptor is replaced by another file with the same number.
        notify_register_file_descriptor(uniqueName(), &descriptor, 0, &token)
        let stranger = open("/dev/null", O_RDONLY | O_CLOEXEC)
        dup2(stranger, descriptor)
        let reused = notify_register_file_descriptor(uniqueName(), &descriptor, NOTIFY_REUSE, &other)
        #expect(status(reused) == NOTIFY_STATUS_INVALID_FILE)
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
        // If the pipe had no reader, writing would raise SIGPIPE.
        #expect(status(notify_post(name)) == NOTIFY_STATUS_OK)
        #expect(status(notify_cancel(token)) == NOTIFY_STATUS_OK)
    }
}
