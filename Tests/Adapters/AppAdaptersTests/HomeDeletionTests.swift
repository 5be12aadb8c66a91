import Basics
import DeviceConfiguration
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@testable import AppAdapters

@Suite("The deletion of a person's home directory")
struct HomeDeletionTests {
    private static func user(_ number: UInt32 = 1000, home: String? = "/home/ada") -> SystemUser {
        SystemUser(number: number, group: number, name: "ada", home: home)
    }

    @Test("only an account of the Linux login names a user")
    func accounts() {
        #expect(HomeDeletion.user(ofAccount: "uid-1000.login-session") == 1000)
        #expect(HomeDeletion.user(ofAccount: "uid-4000000000.contoso.example") == 4_000_000_000)
        let others = ["", "1000", "uid-", "uid-+1000.x", "uid--1.x", "uid-4294967296.x", "ada.uid-1000", "uid-1000x.y"]
        #expect(others.filter { HomeDeletion.user(ofAccount: $0) != nil } == [])
    }

    @Test("system users and homes that others need or may change are refused")
    func refused() throws {
        // Users of the system, of services and of systemd-homed.
        for number in [0, 1, 999, 60_001, 60_513, 61_184, 65_534, 65_535, UInt32.max] {
            #expect(throws: ValueFlaw.self, "\(number)") { try HomeDeletion(of: Self.user(number)) }
        }
        for home in [
            nil, "/", "/home", "/root", "/usr", "/usr/share/ada", "/etc/ada", "/var", "/var/lib", "/tmp", "/run/user",
            "/home/../etc", "/home//ada", "home/ada", "/var/lib/shared-device", "/dev/null",
        ] { #expect(throws: ValueFlaw.self, "\(home ?? "nil")") { try HomeDeletion(of: Self.user(home: home)) } }
        #expect(try HomeDeletion(of: Self.user(70_000, home: "/srv/homes/ada")).home == "/srv/homes/ada")
        try HomeDeletion.checkPlace(of: "/usr/ada")
        let error = #expect(throws: AdapterFailure.self) { try HomeDeletion.checkPlace(of: "/tmp/ada") }
        #expect(error?.description.contains("/tmp is missing, or others than root may write to it") == true)
        #expect(throws: AdapterFailure.self) { try HomeDeletion.checkPlace(of: "/usr/nothing-here/ada") }
    }

    @Test("the user's processes delay, prevent or repeat the deletion")
    func processes() async throws {
        let looks = Locked(0)
        let deleted = Locked(0)
        /// - Parameter busy: the looks that find a process.
        func deletion(busy: Set<Int>, patience: Duration = .seconds(30)) throws -> HomeDeletion {
            try HomeDeletion(
                of: Self.user(),
                patience: patience,
                processes: {
                    looks.withLock { looks in
                        looks += 1
                        return .success(busy.contains(looks) ? [getpid()] : [])
                    }
                },
                delete: {
                    deleted.withLock { $0 += 1 }
                    return .success(UserDataDirectory.Removed())
                }
            )
        }
        let stuck = try deletion(busy: Set(1...100), patience: .zero)
        let error = await #expect(throws: AdapterFailure.self) { try await stuck.run() }
        let reason = "could not delete /home/ada: processes of its user run: \(getpid()) ("
        #expect(error?.description.contains(reason) == true && deleted.withLock { $0 } == 0)
        looks.withLock { $0 = 0 }
        // Two looks with a process, then none; a process after the first deletion; then none.
        _ = try await deletion(busy: [1, 2, 4]).run()
        #expect(deleted.withLock { $0 } == 2 && looks.withLock { $0 } == 6)
    }

    @Test("the command refuses what is no person's account", arguments: ["uid-0.login-session", "1.t"])
    func command(account: String) async throws {
        let command = try ChildProcess(ChildProcess.built("shared-device-cleanup"), ["home", account])
        #expect(await command.exitStatus() == EX_DATAERR && !command.errorText.isEmpty, "\(command.errorText)")
    }
}
