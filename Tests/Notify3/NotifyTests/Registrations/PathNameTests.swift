import NotifyCenter
import Testing

@testable import notify

@Suite struct PathNameTests {
    // Rules, a.4
    @Test func aNameMaySayWhichPathItMonitors() {
        func pathName(_ rest: String) -> PathName? {
            PathName("com.apple.system.notify.service.path:\(rest)")
        }
        #expect(pathName("/etc/hosts")?.path == "/etc/hosts")
        #expect(pathName("/etc/hosts")?.flags == 0)
        #expect(pathName("3:/etc/hosts")?.path == "/etc/hosts")
        #expect(pathName("3:/etc/hosts")?.flags == 3)
        #expect(pathName("0x3f:/etc/hosts")?.flags == 0x3F)
        #expect(pathName("/tmp/a:b")?.path == "/tmp/a:b")
        #expect(pathName("x:/tmp")?.path == "x:/tmp")
        #expect(PathName("com.apple.system.timezone") == nil)
    }
}
