import BrokerCore
import Foundation
import Glibc
import NotifyCenterTestKit

/// A program that knows nothing of shared device mode, with the adapter that takes part for it: a real
/// `shared-device-cleanup`, by the app's manifest. With several users the adapter runs as root, and the program as
/// another user.
///
/// The program continually writes the marker of its present user. It learns the marker only from this process, as a
/// real program learns its user. A run of the program gets the marker only if it exists during the open session. So all
/// that it writes belongs to that session, and must be gone when the receipt arrives.
final class AdapterProcess {
    static let app = "org.example.adapter"
    /// A mistake of the program: after the first adapter was killed, its child processes hide from the next one. The
    /// test must detect the leak.
    static let hidingMutant = "hides-from-its-adapter"

    let participant = Participant(app: app, user: Rights.hasUsers ? Rights.secondUser : geteuid())
    private let directory: String
    private let bus: String
    private let manifests: String
    private let hides: Bool
    /// The adapter does not run in tests of other apps' mistakes, because its programs take seconds to end.
    let takesPart: Bool
    private var process: ChildProcess?
    private var told: Set<String> = []

    init(in directory: String, bus: String, manifests: String, mutant: String?) throws {
        self.directory = "\(directory)/adapter"
        self.bus = bus
        self.manifests = manifests
        hides = mutant == Self.hidingMutant
        takesPart = mutant == nil || hides
        for path in [self.directory, data, inbox] {
            mkdir(path, 0o755)
            chown(path, participant.user, participant.user)
        }
        let program = "\(self.directory)/program.py"
        try Self.program.write(toFile: program, atomically: true, encoding: .utf8)
        chown(program, participant.user, participant.user)
    }

    private var data: String { "\(directory)/data" }
    /// The directory with a file for each run of the program, which contains the marker of its user.
    private var inbox: String { "\(directory)/inbox" }

    var manifest: String {
        let command = ["/usr/bin/python3", "\(directory)/program.py", data, inbox, hides ? "hides" : "stays"]
        let words = command.map { "\"\($0)\"" }.joined(separator: ", ")
        return """
            {"id": "\(Self.app)", "user": \(participant.user), "executable": "\(ChildProcess.built("shared-device-cleanup"))",
             "cleanup": {"command": [\(words)], "delete": ["\(data)"], "start": "always"}}
            """
    }

    // MARK: Life cycle

    func start() throws {
        guard process == nil, takesPart else { return }
        let arguments = [Self.app, "--bus", bus, "--apps", manifests, "--state", "\(directory)/state"]
        process = try .start("shared-device-cleanup", arguments, as: geteuid())
    }

    func kill() {
        process?.end()
        process = nil
    }

    /// Kills the adapter and all processes of its program. A process that still writes would prevent the removal of the
    /// directory.
    func end() {
        kill()
        try? FileManager.default.removeItem(atPath: inbox)
        var found: [pid_t]
        repeat {
            let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
            found = names.compactMap { pid_t($0) }.filter(isProgram)
            for number in found { Glibc.kill(number, SIGKILL) }
        } while !found.isEmpty
    }

    /// Kills the runs of the program, but not their child processes.
    func killProgram() {
        for number in starts.compactMap({ pid_t($0) }) where isProgram(number) { Glibc.kill(number, SIGKILL) }
    }

    private func isProgram(_ number: pid_t) -> Bool {
        let command = try? String(contentsOfFile: "/proc/\(number)/cmdline", encoding: .utf8)
        return command?.contains(inbox) == true
    }

    /// The error output of an adapter that ended without being killed.
    var failure: String? { process?.failure }
    var log: [String] { process?.log ?? [] }

    // MARK: The user of the program

    var starts: [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: inbox)) ?? []).filter { pid_t($0) != nil }
    }

    /// Tells the user's marker to the program.
    ///
    /// - Parameters:
    ///   - starts: the runs of the program, by process number, that existed before the session was seen to be open.
    func use(_ starts: [String], by marker: Marker) {
        for start in starts where told.insert(start).inserted {
            let file = open("\(inbox)/\(start)", O_WRONLY | O_APPEND | O_CLOEXEC)
            guard file >= 0 else { continue }
            let line = "\(marker.user).\(marker.epoch)\n"
            _ = write(file, line, line.utf8.count)
            close(file)
        }
    }

    /// The markers in the program's data, including data that is about to be deleted.
    var sight: Sight {
        let paths = FileManager.default.enumerator(atPath: data)?.compactMap { $0 as? String } ?? []
        let names = paths.compactMap { $0.split(separator: "/").last }
        return Sight(app: participant, files: Set(names.compactMap { Marker($0) }))
    }

    /// `nil` without a record.
    var recordedEpochs: [UInt64]? { AppProcess.recordedEpochs(in: "\(directory)/state") }

    /// The program is deliberately hard to stop: some of its processes ignore SIGTERM, leave their session and their
    /// parents, and continue until the inbox is deleted.
    private static let program = #"""
        import os, random, signal, sys, time

        data, inbox, way = sys.argv[1:4]
        hides = way == "hides"
        marker = sys.argv[4] if len(sys.argv) > 4 else None
        desk = f"{inbox}/{os.getpid()}"
        if marker is None:
            open(desk, "w").close()
        children = 0

        def perhaps_ignore_term():
            if random.random() < 0.02:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)

        def leave():
            if random.random() < 0.5 or hides:
                os.setsid()
            if (random.random() < 0.5 or hides) and os.fork() != 0:
                os._exit(0)
            if hides:
                variables = {name: value for name, value in os.environ.items() if name != "SHARED_DEVICE_ADAPTER"}
                os.execve(sys.executable, [sys.executable, sys.argv[0], data, inbox, "stays", marker], variables)

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        perhaps_ignore_term()
        while os.path.isdir(inbox):
            try:
                if marker is None:
                    lines = open(desk).read().split("\n")
                    marker = lines[0] if len(lines) > 1 else None
                else:
                    with open(f"{data}/{marker}.{os.getpid()}", "a") as file:
                        file.write(".")
                    if children < 2 and random.random() < 0.1:
                        children += 1
                        if os.fork() == 0:
                            children = 2
                            leave()
                            perhaps_ignore_term()
            except OSError:
                pass
            time.sleep(0.01)
        """#
}
