import Basics
import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("A new or solved problem ends a status poll (CO-1)")
struct ProblemTests {
    private let device = VirtualDevice()

    /// Sends a status request that waits for the next change, then performs `happen`.
    ///
    /// - Returns: the response that the change causes.
    private func change(_ happen: () throws -> Void) throws -> BrokerProtocol.Fields {
        let known = try device.status()["revision"]?.unsignedValue
        let question = device.send(device.administrator, .status(known: known, patience: .seconds(50)))
        device.expectUnanswered(question)
        try happen()
        return try device.answer(question)
    }

    @Test("a disk that fails or recovers ends a status poll")
    func diskProblem() throws {
        let broken = try change {
            device.diskMode = .fails("the disk is full")
            // This adds a log entry and changes nothing else.
            device.feed(.malformed(connection: ":1.99", method: "SignOut", .missing("accountIdentifier")))
            device.advance(by: Facts.Disk.lazyWrite)
        }
        #expect(broken["storeProblem"] == .string("the disk is full"))
        let mended = try change {
            device.diskMode = .commits
            device.advance(by: BrokerState.diskPause)
        }
        #expect(mended["storeProblem"] == nil)
    }

    @Test("a key problem or its end ends a status poll, also if no request waited for it")
    func keyProblem() throws {
        let trouble = "the keys of tokens: there is no space; free some space and try again"
        #expect(try change { device.feed(.keys([trouble])) }["keyProblem"] == .string(trouble))
        #expect(try change { device.feed(.keys([])) }["keyProblem"] == nil)
        let known = try device.status()["revision"]?.unsignedValue
        device.feed(.keys(["there is no space; free some space and try again"]))
        let status = try device.ask(device.administrator, .status(known: known, patience: .seconds(50)))
        #expect(status["keyProblem"] != nil)
    }

    @Test("a login session that cannot be ended, or has ended, ends a status poll")
    func loginProblem() throws {
        device.configure {
            $0.identity = .loginSession
            $0.endsLoginSession = true
        }
        device.sit()
        device.sit(.of())
        try device.ask(device.administrator, .signOutAnyone(identifier: nil, reason: "over"))
        #expect(device.endedLogins.count == 1)
        let refused = try change { device.feed(.loginsEnded(["1"], "access denied")) }
        #expect(refused["loginProblem"]?.stringValue?.contains("access denied") == true)
        #expect(try change { device.sit() }["loginProblem"] == nil)
    }

    @Test("an app that the bus cannot start, or can start again, ends a status poll")
    func startProblem() throws {
        device.use(.app("org.example.notes", busName: "org.example.notes"))
        let notes = device.app("org.example.notes")
        try device.signIn("ada", by: notes)
        device.quit(notes)
        device.service = .noBus
        try device.ask(device.administrator, .signOutAnyone(identifier: nil, reason: "over"))
        func problem(_ status: BrokerProtocol.Fields) -> String? {
            status["apps"]?.elementsValue?.compactMap(\.fieldsValue).compactMap { $0["startProblem"]?.stringValue }
                .first
        }
        let failed = try change {
            device.service = .failed("its program is gone")
            device.advance(by: .seconds(1))
        }
        #expect(problem(failed)?.contains("its program is gone") == true)
        let mended = try change {
            device.service = .running
            device.advance(by: .seconds(2))
        }
        #expect(problem(mended) == nil)
    }

    @Test("a problem of enforcement or of a manifest is in the status, and ends its poll")
    func manifestProblems() throws {
        let text = #"{"id": "org.example.desk", "user": 1000, "executable": "/usr/bin/app"}"#
        device.use(try AppManifest(json: Data(text.utf8), file: "desk.json"))
        let desk = device.app("org.example.desk")
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        try device.ask(device.administrator, .overdue(patience: .zero))
        let enforced = try change { device.configure { $0.cleanup = CleanupPolicy(.enforced) } }
        let problems = enforced["enforcementProblems"]?.stringsValue
        #expect(problems?.count == 1 && problems?.first?.hasPrefix("org.example.desk has no manifest") == true)
        let more = text.dropLast() + #", "cleanup": {"by": "app", "delete": ["/var/lib/desk"]}}"#
        let manifest = try AppManifest(json: Data(more.utf8), file: "desk.json")
        // A manifest changes neither the device state nor a debt.
        #expect(try change { device.use(manifest) }["enforcementProblems"] == .array([], of: "s"))
        let refused = try change { device.feed(.manifests([], problems: ["desk.json: it deletes /"])) }
        #expect(refused["manifestProblems"]?.stringsValue == ["desk.json: it deletes /"])
        #expect(try change { device.use() }["manifestProblems"] == .array([], of: "s"))
    }

    @Test("the device's certificates are in the status, and a new end ends a status poll")
    func certificates() throws {
        func certificate(_ end: Double) -> Event {
            .certificates([
                DeviceCertificate(.provider, file: "/a.pem", end: .success(end)),
                DeviceCertificate(.fleetAgent, file: "/b.pem", end: .failure(.init("/b.pem cannot be read"))),
            ])
        }
        device.feed(certificate(1000))
        let renewed = try change { device.feed(certificate(2000)) }["certificates"]
        let fields = renewed?.elementsValue?.compactMap(\.fieldsValue)
        #expect(fields?.map { $0["use"] } == [.string("provider"), .string("fleetAgent")])
        #expect(fields?.map { $0["end"] } == [.double(2000), nil])
        #expect(fields?.last?["problem"] == .string("/b.pem cannot be read"))
        #expect(try device.ask(device.administrator, .runningApps)["certificates"] == renewed)
        let known = try device.status()["revision"]
        device.feed(certificate(2000))
        #expect(try device.status()["revision"] == known)
    }
}
