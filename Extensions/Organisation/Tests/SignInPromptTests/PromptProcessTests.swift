import Basics
import DBus
import EmbeddedIdentity
import Foundation
import Glibc
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@testable import SignInPrompt

@Suite("The prompt with the broker and the device's own directory")
struct PromptProcessTests {
    // MARK: At a terminal

    @Test("the terminal hides the password and asks again after a wrong one")
    func terminal() async throws {
        let device = try await PromptDevice()
        let prompt = try device.terminal(hint: "ada")
        try await sees(prompt, "User name [ada]: ")
        try prompt.write("")
        try await sees(prompt, "Password: ")
        try prompt.write("incorrect horse")
        try await sees(prompt, "the user name or the password is wrong")
        try await sees(prompt, "User name [ada]: ", times: 2)
        try prompt.write("grace")
        try await sees(prompt, "Password: ", times: 2)
        try prompt.write("correct horse grace")
        #expect(await prompt.exitStatus() == 0)
        let screen = prompt.lines.joined(separator: "\n")
        #expect(screen.contains("signed in as grace") && !screen.contains("horse"))
        #expect(try await device.user() == "grace")
    }

    @Test("a badge and its PIN sign a user in at the terminal, which shows neither")
    func badgeAtTerminal() async throws {
        let device = try await PromptDevice(badges: ["ada": "0041-ada"])
        let prompt = try device.terminal()
        let question = "press Return to type a user name: "
        try await sees(prompt, question)
        try prompt.write("")
        try await sees(prompt, "User name: ")
        try prompt.write("ada")
        try await sees(prompt, "Password: ")
        try prompt.write("incorrect horse")
        try await sees(prompt, question, times: 2)
        try prompt.write("0041-ada")
        try await sees(prompt, "PIN: ")
        try prompt.write("98765")
        try await sees(prompt, "the badge or the PIN is wrong")
        try await sees(prompt, question, times: 3)
        try prompt.write("0041-ada")
        try await sees(prompt, "PIN: ", times: 2)
        try prompt.write("1234")
        #expect(await prompt.exitStatus() == 0)
        let screen = prompt.lines.joined(separator: "\n")
        #expect(screen.contains("signed in as ada"))
        for secret in ["0041-ada", "98765", "1234"] { #expect(!screen.contains(secret), "\(secret)") }
        #expect(try await device.user() == "ada")
    }

    @Test("Ctrl-C and the end of the input cancel a sign-in, an empty user name does not")
    func interruptedTerminal() async throws {
        let device = try await PromptDevice()
        let prompt = try device.terminal(hint: "ada")
        try await sees(prompt, "User name [ada]: ")
        try prompt.write("")
        try await sees(prompt, "Password: ")
        try prompt.write("\u{3}")
        #expect(await prompt.exitStatus() == 1)
        #expect(prompt.lines.joined().contains("user_canceled"))
        let other = try device.terminal()
        try await sees(other, "User name: ")
        try other.write("\u{4}")
        #expect(await other.exitStatus() == 1)
        #expect(try await device.user() == nil)
        let last = try device.terminal()
        try await sees(last, "User name: ")
        try last.write("")
        try await sees(last, "User name: ", times: 2)
        try last.write("ada")
        try await sees(last, "Password: ")
        #expect(!last.lines.joined().contains("wrong"), "the empty name was no attempt")
        try last.write("correct horse ada")
        #expect(await last.exitStatus() == 0)
        #expect(try await device.user() == "ada")
    }

    @Test("without a display or a temporary profile no provider's page is opened")
    func nowhere() async throws {
        let device = try await PromptDevice()
        let prompt = try device.prompt("--json")
        #expect(await prompt.exitStatus() == EX_UNAVAILABLE)
        #expect(try PromptResult(prompt).code == "interaction_required")
        #expect(try PromptResult(prompt).message?.contains("neither a terminal nor a display") == true)
        // The user would open the address in their own browser, which keeps the provider's cookie.
        let terminal = try device.terminal("--method", "browser")
        #expect(await terminal.exitStatus() == EX_UNAVAILABLE)
        #expect(terminal.lines.joined().contains("a browser needs a display"))
        // A browser that the prompt does not start has no temporary profile.
        let bus = try PrivateBus()
        let broker = try await FakeBroker(bus) { method, _ in
            throw FakeBroker.refusal(.providerUnavailable, "the provider cannot be reached")
        }
        let (program, page) = (ChildProcess.built("shared-device-sign-in"), ["--page", "--browser", "none", "--json"])
        let pageOnly = try ChildProcess(program, ["--bus", bus.address] + page)
        #expect(await pageOnly.exitStatus() == EX_UNAVAILABLE)
        #expect(broker.asked(.beginSignIn).first?["methods"]?.stringsValue == ["password", "deviceCode"])
        let byBrowser = try ChildProcess(program, ["--bus", bus.address, "--method", "browser"] + page)
        #expect(await byBrowser.exitStatus() == EX_USAGE && byBrowser.errorText.contains("--browser none"))
        #expect(broker.asked(.beginSignIn).count == 1)
    }

    // MARK: On a page

    @Test("the page asks again after a wrong password, and a later user is not signed in")
    func page() async throws {
        let device = try await PromptDevice()
        let (prompt, address) = try await device.page()
        let late = try await device.page()
        let form = try await Page.get(address)
        #expect(form.status == 200)
        #expect(CoreLimits(of: prompt.identifier) == CoreLimits.ofPrompts)
        for header in [
            "Cache-Control: no-store", "Content-Security-Policy: default-src 'none'", "Referrer-Policy: no-referrer",
            "X-Frame-Options: DENY", "X-Content-Type-Options: nosniff",
        ] { #expect(form.text.contains(header), "\(header)") }
        #expect(!form.text.contains("<script"))
        let wrong = try await Page.post(address, "ada", "incorrect horse")
        #expect(wrong.status == 200 && !wrong.text.contains("horse"))
        for text in [#"role="alert""#, "the user name or the password is wrong", #"value="ada""#] {
            #expect(wrong.text.contains(text), "\(text)")
        }
        #expect(try await device.user() == nil)
        let right = try await Page.post(address, "ada", "correct horse ada")
        #expect(right.text.contains("ada is signed in"))
        #expect(await prompt.exitStatus() == 0)
        #expect(try PromptResult(prompt).username == "ada")
        #expect(try await device.user() == "ada")
        // Another server may own the port by now; it has no such page.
        #expect(try await Page.get(address).status != 200, "the page is still served")
        let refusal = try await Page.post(late.address, "grace", "correct horse grace")
        #expect(refusal.text.contains("You are not signed in"))
        #expect(await late.prompt.exitStatus() == EX_DATAERR)
        #expect(try PromptResult(late.prompt).code == "account_already_signed_in")
        #expect(try await device.user() == "ada")
    }

    @Test("on a page refused badges look alike until they are too many; a right one works")
    func badgeOnPage() async throws {
        let device = try await PromptDevice(badges: ["ada": "0041", "grace": "0042"])
        try device.users.setBadge(nil, ofUserNamed: "grace")
        let (prompt, address) = try await device.page()
        func show(_ badge: String, _ pin: String) async throws -> String {
            let asked = try await Page.get(address, "--data-urlencode", "badge=\(badge)")
            #expect(asked.text.contains(#"id="pin""#) && !asked.text.contains(badge))
            return try await Page.get(address, "--data-urlencode", "pin=\(pin)").text
        }
        // The time left in the page's head changes.
        func body(_ page: String) -> Substring? { page.split(separator: "<body>").last }
        let answers = [try await show("0041", "9999"), try await show("0042", "1234"), try await show("0043", "1234")]
        #expect(answers[0].contains("the badge or the PIN is wrong") && Set(answers.map(body)).count == 1)
        for _ in 0..<4 { _ = try await show("0043", "1234") }
        #expect(try await show("0043", "1234").contains("too many"))
        #expect(try await device.user() == nil)
        #expect(try await show("0041", "1234").contains("ada is signed in"))
        #expect(await prompt.exitStatus() == 0)
        #expect(try await device.user() == "ada")
    }

    @Test("the end of broker or bus ends a sign-in, and page and terminal say so", arguments: [true, false])
    func brokerEnds(withBus: Bool) async throws {
        let device = try await PromptDevice()
        let (prompt, address) = try await device.page()
        let terminal = try device.terminal()
        try await sees(terminal, "User name: ")
        if withBus { device.bus.stop() } else { device.broker.kill() }
        try await eventually("the page says that it is over") {
            try await Page.get(address).text.contains("the broker of this device has ended")
        }
        #expect(await prompt.exitStatus() == EX_UNAVAILABLE)
        #expect(try PromptResult(prompt).code == "broker_unavailable")
        #expect(await terminal.exitStatus() == EX_UNAVAILABLE)
        #expect(terminal.lines.joined().contains("begin again"), "\(terminal.lines)")
    }

    @Test("SIGINT and SIGKILL cancel the sign-in at the broker")
    func ended() async throws {
        let device = try await PromptDevice()
        // The broker allows a user two sign-ins at a time, so a sign-in that was not cancelled would be in the way.
        for signal in [SIGINT, SIGINT, SIGKILL, SIGKILL] {
            let (prompt, _) = try await device.page()
            prompt.send(signal)
            #expect(await prompt.exitStatus() == (signal == SIGKILL ? 128 + SIGKILL : 1))
        }
        let (prompt, address) = try await device.page()
        _ = try await Page.post(address, "ada", "correct horse ada")
        #expect(await prompt.exitStatus() == 0)
    }

    @Test("the content of a directory that other users may change is not removed", arguments: [true, false])
    func strangersDirectory(isForeign: Bool) async throws {
        let directory = try TemporaryDirectory("si")
        let (root, file) = ("\(directory.path)/sign-in", "\(directory.path)/sign-in/abcdef/file")
        try FileManager.default.createDirectory(atPath: "\(root)/abcdef", withIntermediateDirectories: true)
        try Data().write(to: URL(filePath: file))
        chmod(root, 0o700)
        // Only root can give away a directory. A directory that all users may write to has the same effect.
        if isForeign, geteuid() == 0 { chown(root, 2, 2) } else { chmod(root, 0o777) }
        func isThere() -> Bool { FileManager.default.fileExists(atPath: file) }
        // Runs in a separate process, because every process that its starter has started counts as a browser. The guard
        // waits for the end of its parent.
        func remove(until isDone: (ChildProcess) -> Bool) async throws -> String {
            let starter = try ChildProcess(
                "sh",
                ["-c", #""$0" --guards-browser & sleep 0.3"#, ChildProcess.built("shared-device-sign-in")],
                environment: ["XDG_RUNTIME_DIR": directory.path]
            )
            try await eventually("the guard is done") { isDone(starter) }
            return starter.errorText
        }
        _ = try await remove { $0.errorText.contains("not a directory of this user alone") }
        #expect(isThere())
        chown(root, geteuid(), getegid())
        chmod(root, 0o700)
        #expect(try await remove { _ in !isThere() }.isEmpty)
    }

    @Test("another user who takes the directory's name does not prevent the sign-in")
    func takenDirectory() async throws {
        let directory = try TemporaryDirectory("si")
        let root = "\(directory.path)/sign-in"
        try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: true)
        if geteuid() == 0 { chown(root, 2, 2) } else { chmod(root, 0o777) }
        let profile = try await BrowserProfile.make(in: root) { Issue.record("\($0)") }
        #expect(profile.path.hasPrefix(root + "-"))
        func isThere() -> Bool { FileManager.default.fileExists(atPath: profile.path) }
        await BrowserProfile.removeLeftovers(of: root) { _ in }
        #expect(isThere(), "its prompt has it")
        try await profile.remove()
        await BrowserProfile.removeLeftovers(of: root) { _ in }
        let names = try FileManager.default.contentsOfDirectory(atPath: directory.path)
        #expect(names == ["sign-in"])
    }

    @Test("a prompt gets a directory although another prompt deletes its first one", .timeLimit(.minutes(2)))
    func deletedDirectory() async throws {
        let directory = try TemporaryDirectory("si")
        let root = "\(directory.path)/sign-in"
        try FileManager.default.createDirectory(
            atPath: root,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700]
        )
        // Deletes one directory as soon as it can lock it.
        let hasDeleted = Atomic(false)
        async let sweep: Void = onThread {
            while !hasDeleted.load(ordering: .relaxed) {
                for name in (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? [] {
                    let profile = open("\(root)/\(name)", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                    let isDeleted = flock(profile, LOCK_EX | LOCK_NB) == 0 && rmdir("\(root)/\(name)") == 0
                    close(profile)
                    if isDeleted { hasDeleted.store(true, ordering: .relaxed) }
                }
            }
        }
        // Ends the sweep also if no directory can be made.
        defer { hasDeleted.store(true, ordering: .relaxed) }
        repeat {
            let profile = try await BrowserProfile.make(in: root) { Issue.record("\($0)") }
            #expect(FileManager.default.fileExists(atPath: profile.path))
            try await profile.remove()
        } while !hasDeleted.load(ordering: .relaxed)
        await sweep
    }

    @Test("without free descriptors the page waits without using the processor")
    func noDescriptors() async throws {
        let device = try await PromptDevice()
        let (prompt, address) = try await device.page()
        func permitFiles(_ count: Int) async throws {
            let child = try ChildProcess("prlimit", ["--pid", "\(prompt.identifier)", "--nofile=\(count):"])
            #expect(await child.exitStatus() == 0, "\(child.errorText)")
        }
        // The first four descriptors are in use.
        try await permitFiles(4)
        async let visit = Page.get(address)
        try await eventually("the reason is told; it says\n\(prompt.errorText)") {
            prompt.errorText.contains("the page waits")
        }
        let (start, before) = (ContinuousClock.now, try prompt.processorTime())
        while ContinuousClock.now < start + .milliseconds(800) { try await Task.sleep(for: .milliseconds(50)) }
        let (used, passed) = (try prompt.processorTime() - before, ContinuousClock.now - start)
        #expect(used < passed / 10, "\(used) of \(passed)")
        #expect(prompt.errorText.components(separatedBy: "the page waits").count == 2)
        try await permitFiles(256)
        #expect(try await visit.status == 200)
        prompt.send(SIGTERM)
        #expect(await prompt.exitStatus() == 1)
    }

    // MARK: Helpers

    private func sees(_ prompt: ChildProcess, _ text: String, times: Int = 1) async throws {
        try await eventually("“\(text)” is shown \(times) times; the screen is\n\(prompt.lines)") {
            prompt.lines.joined(separator: "\n").components(separatedBy: text).count > times
        }
    }
}
