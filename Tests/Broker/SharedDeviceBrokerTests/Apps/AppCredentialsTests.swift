import DeviceConfiguration
import Foundation
import Glibc
import NotifyCenterTestKit
import Testing

import class NotifyCenterTestKit.ChildProcess
import func NotifyCenterTestKit.eventually

@testable import BrokerCore
@testable import SharedDeviceBroker

// S9, DT-1 to DT-4
@Suite("How the processes of an app are identified")
struct AppCredentialsTests {
    private func credentials(
        _ executable: String = "/usr/bin/a",
        user: UInt32 = 1000,
        unit: String? = nil,
        label: String? = nil,
        flatpak: String? = nil
    ) -> AppCredentials {
        AppCredentials(
            user: user,
            executable: executable,
            unit: unit,
            label: label,
            sandbox: flatpak.map { .flatpak($0) } ?? .absent
        )
    }

    private func mismatch(_ identity: AppManifest.Identity, _ credentials: AppCredentials) -> String? {
        AppManifest(identifier: "a.b", identity: identity).mismatch(credentials)?.rawValue
    }

    @Test("all facts in a manifest must match; a profile counts only in enforce mode")
    func mismatches() {
        let all = AppManifest.Identity(executable: "/usr/bin/a", user: 1000, unit: "a.service", appArmor: "a")
        let flatpak = AppManifest.Identity(flatpak: "org.example.A")
        let cases: [(AppManifest.Identity, AppCredentials, String?)] = [
            (all, credentials(unit: "a.service", label: "a (enforce)"), nil),
            (all, credentials("/usr/bin/b", unit: "a.service", label: "a (enforce)"), "executable"),
            (all, credentials(label: "a (enforce)"), "unit"),
            (all, credentials(unit: "a.service"), "appArmor"),
            (all, credentials(user: 7, unit: "a.service", label: "a (enforce)"), "user"),
            // A Flatpak's process matches no other app, whatever its program's path.
            (.init(executable: "/usr/bin/a"), credentials(flatpak: "org.evil.A"), "flatpak"),
            (flatpak, credentials("/app/bin/x", flatpak: "org.example.A"), nil),
            (flatpak, credentials("/app/bin/x"), "flatpak"),
        ]
        for (identity, credentials, expected) in cases {
            #expect(mismatch(identity, credentials) == expected, "\(credentials)")
        }
        let labels = ["snap.a.b (enforce)", "a (complain)", "unconfined", "a", "", nil]
        #expect(labels.map { credentials(label: $0).enforcedProfile } == ["snap.a.b", nil, nil, nil, nil, nil])
    }

    @Test("only a missing .flatpak-info means no sandbox, and an unreadable one no app")
    func unreadableSandbox() throws {
        let caller = AppCredentials(
            user: 1000,
            executable: "/usr/bin/a",
            unit: "a.service",
            label: "a (enforce)",
            sandbox: .unreadable("Permission denied")
        )
        let identities: [AppManifest.Identity] = [
            .init(executable: "/usr/bin/a"), .init(flatpak: "org.example.A"), .init(unit: "a.service"),
            .init(appArmor: "a"), .init(user: 1000),
        ]
        for identity in identities {
            #expect(mismatch(identity, caller) == "flatpak", "\(identity)")
            let eligibility = AppEligibility(manifests: [AppManifest(identifier: "a.b", identity: identity)])
            for claimed in ["a.b", "c.d", nil] {
                let decision = eligibility.decide(caller, claiming: claimed)
                let words = "does not say of which Flatpak it is: Permission denied; give the broker"
                #expect(decision.isRefused(words), "\(identity) \(claimed ?? "")")
            }
        }
        let root = try TemporaryDirectory()
        let file = root.file(".flatpak-info")
        func seen() -> AppCredentials.Sandbox { ProcessView.sandbox(atRoot: root.path) }
        func isUnreadable() -> Bool {
            if case .unreadable = seen() { true } else { false }
        }
        #expect([seen(), ProcessView.sandbox(atRoot: root.file("nothing"))] == [.absent, .absent])
        try root.write("[Application]\nname=org.a.B\n", to: ".flatpak-info")
        #expect(seen() == .flatpak("org.a.B"))
        if geteuid() != 0 {
            #expect(chmod(file, 0) == 0)
            #expect(seen() == .unreadable("Permission denied"))
        }
        let long = "[Application]\nname=org.a.B\n" + String(repeating: "#", count: 65_536)
        for text in ["", "[Runtime]\nname=org.a.B\n", long] {
            try text.write(toFile: file, atomically: true, encoding: .utf8)
            #expect(isUnreadable(), "\(text.prefix(40))")
        }
        for make in [{ symlink("/nowhere", file) }, { mkfifo(file, 0o600) }, { mkdir(file, 0o700) }] {
            #expect(remove(file) == 0 && make() == 0)
            #expect(isUnreadable())
        }
    }

    @Test("on a bus of many users a manifest needs facts that other users cannot forge")
    func proof() throws {
        let expected: [(AppManifest.Identity, String?)] = [
            (.init(executable: "/usr/bin/a"), "cannot forge"), (.init(flatpak: "org.example.A"), "cannot forge"),
            (.init(executable: "/usr/bin/a", user: 1000), nil), (.init(unit: "a.service"), nil),
            (.init(appArmor: "a"), nil), (.init(executable: "/usr/bin/a", user: 7), "is not run by the user"),
            (.init(unit: "b.service"), "does not fit \"unit\""),
        ]
        for (identity, words) in expected {
            let manifest = AppManifest(identifier: "a.b", identity: identity)
            let eligibility = AppEligibility(requiresEnrolment: true, manifests: [manifest], requiresProof: true)
            let caller = credentials(unit: "a.service", label: "a (enforce)", flatpak: identity.flatpak)
            #expect(eligibility.decide(caller, claiming: "a.b").isRefused(words), "\(identity)")
        }
        // If proof is required, a manifest without it does not identify a caller that claims no name.
        let hint = AppManifest(identifier: "a.b", identity: .init(executable: "/usr/bin/a"))
        let identifiers = try [false, true].map { requiresProof in
            let eligibility = AppEligibility(manifests: [hint], requiresProof: requiresProof)
            return try eligibility.decide(credentials(), claiming: nil).get().identifier
        }
        #expect(identifiers == ["a.b", "/usr/bin/a (uid 1000)"])
    }

    @Test("only the system's units and a Flatpak's Application section identify an app")
    func units() {
        for (text, unit) in [
            ("0::/system.slice/orders.service\n", "orders.service"),
            ("0::/system.slice/orders.service/sub\n", "orders.service"),
            ("0::/machine.slice/vm.scope\n", "vm.scope"),
            ("12:cpu:/x\n0::/system.slice/orders.service\n", "orders.service"),
            ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/orders.service\n", nil),
            ("0::/user.slice/user-1000.slice/session-1.scope\n", nil), ("0::/\n", nil), ("", nil), ("\n\n0:", nil),
            ("1:name=systemd:/system.slice/orders.service\n", nil),
        ] as [(String, String?)] {
            #expect(ProcessView.unit(inControlGroups: text) == unit, "\(text)")
        }
        for (text, identifier) in [
            ("[Application]\nname=org.a.B\nruntime=x\n", "org.a.B"),
            ("[Context]\nname=org.evil\n[Application]\nname=org.a.B\n", "org.a.B"), ("", nil), ("name=org.a.B", nil),
            ("[Context]\nname=org.a.B\n", nil), ("[Application]\n[Other]\nname=org.a.B", nil),
        ] as [(String, String?)] {
            #expect(ProcessView.flatpak(inInformation: text) == identifier, "\(text)")
        }
    }

    @Test("the test's own process is identified correctly")
    func ownProcess() throws {
        let seen = ProcessView.credentials(ofProcess: UInt32(getpid()), user: geteuid(), label: nil)
        #expect(seen.executable == (try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")))
        #expect(seen.user == geteuid() && seen.flatpak == nil)
        for process in [nil, UInt32.max, UInt32(getpid())] {
            let unseen = ProcessView.credentials(ofProcess: process, user: geteuid() + 7, label: nil)
            #expect(unseen.executable == ProcessView.unseen && unseen.unit == nil, "the process is another user's")
        }
    }

    /// Runs a copy of `sleep`, and then a script whose first argument is the path of the copy.
    private func sleeper(_ script: String) async throws -> String? {
        let directory = try TemporaryDirectory()
        let path = directory.file("sleeper")
        func run(_ script: String) async throws {
            #expect(try await ChildProcess("sh", ["-e", "-c", script, "sh", path]).exitStatus() == 0)
        }
        // Another process copies the file. If this process did, a thread that forks at that moment would hold the file
        // open for writing.
        try await run(#"cp /bin/sleep "$1""#)
        let process = try ChildProcess(path, ["600"])
        #expect(ProcessView.executable(of: UInt32(process.identifier))?.hasSuffix("/sleeper") == true)
        try await run(script)
        return ProcessView.executable(of: UInt32(process.identifier))
    }

    @Test("a program whose path leads to another file is not identified")
    func otherFile() async throws {
        // The kernel reports the file's new name, and the new file at the old path is not the running program.
        #expect(try await sleeper(#"mv "$1" "$1.old"; cp /bin/sleep "$1""#)?.hasSuffix("/sleeper") == false)
    }

    @Test(
        "a program counts as replaced by an update only if its file has no name left",
        .enabled(if: geteuid() == 0, "only root's program may have been replaced")
    )
    func replaced() async throws {
        #expect(try await sleeper(#"ln "$1" "$1.other"; rm "$1""#) == nil)
        #expect(try await sleeper(#"rm "$1""#)?.hasSuffix("/sleeper") == true)
    }

    @Test("a process of root is examined even if other users have taken all threads")
    func threadsOfAdministrators() async throws {
        let (gate, looks) = (DispatchSemaphore(value: 0), ProcessLooks(patience: .seconds(600)))
        let (begun, seen) = (Shared(0), Shared<[uid_t]>([]))
        for number: uid_t in 0..<64 {
            let user = 100_001 + number / 4
            looks.look(
                of: user,
                {
                    begun.withLock { $0 += 1 }
                    gate.wait()
                    return AppCredentials(user: user, executable: ProcessView.unseen)
                },
                seen: { _ in }
            )
        }
        try await eventually("all threads are taken") { begun.withLock { $0 } == 64 }
        for user: uid_t in [100_017, 0] {
            looks.look(
                of: user,
                { AppCredentials(user: user, executable: "/app") },
                seen: { credentials in seen.withLock { $0 += [credentials?.user ?? .max] } }
            )
        }
        try await eventually("root's process is seen") { seen.withLock { $0 } == [0] }
        for _ in 0..<64 { gate.signal() }
        try await eventually("then the other user's") { seen.withLock { $0 } == [0, 100_017] }
    }
}
