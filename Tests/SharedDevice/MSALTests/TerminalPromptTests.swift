import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

@testable import MSAL

@Suite("Asking on a terminal")
struct TerminalPromptTests {
    /// A person at a terminal: `typed` goes in, `shown` comes out.
    private final class Person {
        let path: String
        private let descriptor: CInt

        init() throws {
            descriptor = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)
            // TIOCSPTLCK and TIOCGPTN, which Swift does not import: unlocks the other side, and asks for its number.
            var (isLocked, number): (CInt, CUnsignedInt) = (0, 0)
            guard descriptor >= 0, ioctl(descriptor, 0x4004_5431, &isLocked) == 0,
                ioctl(descriptor, 0x8004_5430, &number) == 0
            else { throw TestDevice.Unexpected(description: "no pseudo terminal") }
            path = "/dev/pts/\(number)"
        }

        deinit { close(descriptor) }

        func type(_ text: String) {
            _ = Array(text.utf8).withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        }

        private(set) var shown = ""

        func sees(_ text: String) async throws {
            try await eventually("“\(text)” is shown") {
                var buffer = [UInt8](repeating: 0, count: 256)
                let count = read(descriptor, &buffer, buffer.count)
                if count > 0 { shown += String(decoding: buffer[..<count], as: UTF8.self) }
                return shown.contains(text)
            }
        }
    }

    @Test("name and password are read, the hint is offered, and the password is not shown")
    func asks() async throws {
        let person = try Person()
        let path = person.path
        let asking = Task { try await TerminalPrompt(path: path).ask(loginHint: "ada") }
        try await person.sees("Name [ada]: ")
        person.type("\n")
        try await person.sees("Password: ")
        person.type("correct horse\n")
        let credentials = try #require(try await asking.value)
        #expect(credentials.username == "ada")
        #expect(credentials.password == "correct horse")
        #expect(!person.shown.contains("horse"))
    }

    @Test("who types another name signs in by that; who ends the input gives up")
    func otherNames() async throws {
        let person = try Person()
        let path = person.path
        let asking = Task { try await TerminalPrompt(path: path).ask(loginHint: nil) }
        try await person.sees("Name: ")
        person.type("grace\n")
        try await person.sees("Password: ")
        person.type("\u{4}")
        #expect(try await asking.value == nil)
    }

    @Test("without a terminal there is an error that says what helps")
    func noTerminal() async throws {
        let error = await #expect(throws: RequestFailure.self) {
            _ = try await TerminalPrompt(path: "/nonexistent/tty").ask(loginHint: nil)
        }
        #expect(error?.codes == .internal(.internalErrorNoViewController))
        #expect(error?.description.contains("MSALWebviewParameters") == true)
    }
}
