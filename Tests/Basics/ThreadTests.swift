import Basics
import Foundation
import Testing

@Suite("Quiet threads")
struct ThreadTests {
    @Test("a crash on a quiet thread calls the process's handler")
    func crash() async {
        await #expect(processExitsWith: .exitCode(7)) {
            signal(SIGSEGV) { _ in _exit(7) }
            _ = QuietThread.start("crash") { UnsafeMutablePointer<Int>(bitPattern: 8)?.pointee = 1 }
            while true { pause() }
        }
    }
}
