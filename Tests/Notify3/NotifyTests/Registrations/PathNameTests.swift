import NotifyCenter
import Testing

@testable import notify

@Suite struct PathNameTests {
    // Rules, a.4
    @Test func aNameMaySayWhichPathItMonitors() {
        let names: [(rest: String, path: String, flags: UInt32)] = [
            ("/etc/hosts", "/etc/hosts", 0), ("3:/etc/hosts", "/etc/hosts", 3), ("0x3f:/etc/hosts", "/etc/hosts", 0x3F),
            ("/tmp/a:b", "/tmp/a:b", 0), ("x:/tmp", "x:/tmp", 0),
        ]
        for (rest, path, flags) in names {
            let name = PathName("com.apple.system.notify.service.path:\(rest)")
            #expect(name?.path == path && name?.flags == flags, "\(rest)")
        }
        #expect(PathName("com.apple.system.timezone") == nil)
    }
}
