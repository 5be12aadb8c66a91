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
        for other in ["", "1000", "uid-", "uid-+1000.x", "uid--1.x", "uid-4294967296.x", "ada.uid-1000", "uid-1000x.y"]
        {
            #expect(HomeDeletion.user(ofAccount: other) == nil, "\(other)")
        }
    }

    @Test(
        "users of the system, services and systemd-homed are refused",
        arguments: [0, 1, 999, 60_001, 60_513, 61_184, 65_534, 65_535, UInt32.max]
    )
    func systemUsers(number: UInt32) {
        #expect(throws: CleanupFlaw.self) { try HomeDeletion(of: Self.user(number)) }
    }

    @Test(
        "a home directory that others need is refused",
        arguments: [
            nil, "/", "/home", "/root", "/usr", "/usr/share/ada", "/etc/ada", "/var", "/var/lib", "/tmp", "/run/user",
            "/home/../etc", "/home//ada", "home/ada", "/var/lib/shared-device", "/dev/null",
        ]
    )
    func homes(home: String?) throws {
        #expect(throws: CleanupFlaw.self) { try HomeDeletion(of: Self.user(home: home)) }
        #expect(try HomeDeletion(of: Self.user(70_000, home: "/srv/homes/ada")).home == "/srv/homes/ada")
    }

    @Test("a home directory that the person could have renamed is refused")
    func place() throws {
        try HomeDeletion.checkPlace(of: "/usr/ada")
        let error = #expect(throws: AdapterFailure.self) { try HomeDeletion.checkPlace(of: "/tmp/ada") }
        #expect(error?.description.contains("/tmp is missing, or others than root may write to it") == true)
        #expect(throws: AdapterFailure.self) { try HomeDeletion.checkPlace(of: "/usr/nothing-here/ada") }
    }

    @Test("nothing is deleted while a process of the user runs, and the reason names the process")
    func running() async throws {
        let deleted = Locked(0)
        let deletion = try HomeDeletion(
            of: Self.user(),
            patience: .zero,
            processes: { .success([getpid()]) },
            delete: {
                deleted.withLock { $0 += 1 }
                return .success(UserDataDirectory.Removed())
            }
        )
        let error = await #expect(throws: AdapterFailure.self) { try await deletion.run() }
        #expect(
            error?.description.contains("could not delete /home/ada: processes of its user run: \(getpid()) (") == true
        )
        #expect(deleted.withLock { $0 } == 0)
    }

    @Test("processes that end in time are waited for, and those that come during the deletion cause another one")
    func returning() async throws {
        let looks = Locked(0)
        let deleted = Locked(0)
        // Two looks with a process, then none; a process after the first deletion; then none.
        let deletion = try HomeDeletion(
            of: Self.user(),
            processes: {
                looks.withLock { looks in
                    looks += 1
                    return .success([1, 2, 4].contains(looks) ? [getpid()] : [])
                }
            },
            delete: {
                deleted.withLock { $0 += 1 }
                return .success(UserDataDirectory.Removed())
            }
        )
        _ = try await deletion.run()
        #expect(deleted.withLock { $0 } == 2 && looks.withLock { $0 } == 6)
    }

    @Test("the command refuses what is no person's account", arguments: ["uid-0.login-session", "1.t"])
    func command(account: String) async throws {
        let command = try ChildProcess(ChildProcess.built("shared-device-cleanup"), ["home", account])
        #expect(await command.exitStatus() == EX_DATAERR && !command.errorText.isEmpty, "\(command.errorText)")
    }
}
