import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDeviceBroker

/// A program that knows nothing of shared device mode, and the adapter that takes part in its place: a real `shared-device-cleanup`, by the app's
/// manifest. Where there are several users, the adapter is root, and the program another user.
///
/// The program writes the marker of whoever uses it, all the time. It learns the marker from this process alone, as a program learns from its user
/// who that is: one start of the program, which is there while the session is open, is told of it, and no later start. So what it writes is that
/// session's, and has to be gone with the receipt.
final class AdapterProcess {
    static let app = "org.example.adapter"
    /// A mistake of the program: what it starts hides from the next adapter when the first is killed. It has to be found as a leak.
    static let hidingMutant = "hides-from-its-adapter"

    let participant = Participant(app: app, user: Rights.hasUsers ? Rights.secondUser : geteuid())
    private let directory: String
    private let bus: String
    private let manifests: String
    private let hides: Bool
    /// Mistakes of the other apps are looked for without it, because its programs take seconds to end.
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
    /// Where each start of the program has a file, which says whose it is.
    private var inbox: String { "\(directory)/inbox" }

    /// The manifest, in JSON.
    var manifest: String {
        let command = ["/usr/bin/python3", "\(directory)/program.py", data, inbox, hides ? "hides" : "stays"]
        let words = command.map { "\"\($0)\"" }.joined(separator: ", ")
        return """
            {"id": "\(Self.app)", "user": \(participant.user), "executable": "\(ChildProcess.built("shared-device-cleanup"))",
             "cleanup": {"command": [\(words)], "delete": ["\(data)"], "start": "always"}}
            """
    }

    // MARK: Its life

    func start() throws {
        guard process == nil, takesPart else { return }
        let arguments = [Self.app, "--bus", bus, "--apps", manifests, "--state", "\(directory)/state"]
        process = try .start("shared-device-cleanup", arguments, as: geteuid())
    }

    /// Kills the adapter, and leaves the program, which goes on.
    func kill() {
        process?.kill()
        process?.waitUntilExit()
        process = nil
    }

    /// Kills the adapter and all that its program has started: whoever still writes keeps the directory from being removed.
    func end() {
        kill()
        try? FileManager.default.removeItem(atPath: inbox)
        var found: [pid_t]
        repeat {
            let numbers = ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap {
                pid_t($0)
            }
            found = numbers.filter { number in
                let command = try? String(contentsOfFile: "/proc/\(number)/cmdline", encoding: .utf8)
                return command?.contains(inbox) == true
            }
            for number in found { Glibc.kill(number, SIGKILL) }
        } while !found.isEmpty
    }

    /// Kills the starts of the program, and leaves what they have started.
    func killProgram() {
        for start in starts {
            guard let number = pid_t(start) else { continue }
            let command = try? String(contentsOfFile: "/proc/\(number)/cmdline", encoding: .utf8)
            if command?.contains(inbox) == true { Glibc.kill(number, SIGKILL) }
        }
    }

    /// Why it ended, where nobody killed it.
    var failure: String? {
        guard let process, !process.isRunning else { return nil }
        // What it wrote last may be on its way.
        process.waitUntilExit()
        return process.errorText
    }
    var log: [String] { (process?.errorText ?? "").split(separator: "\n").map(String.init) }

    // MARK: Its user

    /// The starts of the program that there have been.
    var starts: [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: inbox)) ?? []).filter { pid_t($0) != nil }
    }

    /// The user of the open session begins to use the program.
    ///
    /// - Parameters:
    ///   - starts: those that there were before the session was seen to be open.
    func use(_ starts: [String], by marker: Marker) {
        for start in starts where told.insert(start).inserted {
            let file = open("\(inbox)/\(start)", O_WRONLY | O_APPEND | O_CLOEXEC)
            guard file >= 0 else { continue }
            let line = "\(marker.user).\(marker.epoch)\n"
            _ = write(file, line, line.utf8.count)
            close(file)
        }
    }

    /// What it has of anybody, also on its way to be deleted.
    var sight: Sight {
        let paths = FileManager.default.enumerator(atPath: data)?.compactMap { $0 as? String } ?? []
        let names = paths.compactMap { $0.split(separator: "/").last }
        return Sight(app: participant, files: Set(names.compactMap { Marker($0) }))
    }

    /// The sessions that its record names; `nil` where it has no record.
    var recordedEpochs: [UInt64]? { AppProcess.recordedEpochs(in: "\(directory)/state") }

    /// Written for obstinacy: some of its processes ignore SIGTERM, leave their session and their parents, and go on as long as there is an inbox.
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
