import ArgumentParser
import CLinux
package import Fleet
import FleetService
import FoundationEssentials
import Glibc
import ProjectVersion
import SharedDevice
import StrictJSON

@main
struct SharedDeviceAgentCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-agent",
        abstract: "Carries out what the fleet's controller orders, and reports how this device stands.",
        discussion: """
            Talks to the broker on the bus and to the fleet's MQTT server. It can sign out and read, and nothing else. Prints “ready” at its \
            start; ends with SIGTERM or SIGINT.
            Exit status: 0 ended as asked; 64 wrong usage; 69 no bus; 78 configuration, key or state directory cannot be used.
            """,
        version: ProjectVersion.line(of: "shared-device-agent")
    )

    @OptionGroup var program: FleetProgram

    func run() async throws { try await program.serve(AgentService.self, role: "agent") }
}

/// The file in which an agent keeps what it has to know after a restart. For one thread at a time; blocks it on the disk.
package struct AgentFile: Sendable {
    private static let limits = JSONLimits(size: 64 << 10, depth: 6, values: 200)

    private let file: AtomicFile

    package init(directory: String) { file = AtomicFile(path: directory + "/agent.json") }

    /// What the file has; an empty memory where there is none.
    ///
    /// - Throws: ``FleetRefusal`` where it cannot be read. An agent that began anew then would carry out old orders once more.
    package func read() throws(FleetRefusal) -> AgentMemory {
        guard let bytes = try FleetFiles.read(file.path, atMost: Self.limits.size) else { return AgentMemory() }
        do {
            return try AgentMemory(JSONValue(parsing: bytes, limits: Self.limits))
        } catch {
            throw FleetRefusal(
                "\(file.path) is damaged (\(error)); remove it: orders that still stand are then carried out once more"
            )
        }
    }

    /// Replaces the file. It is on the disk when this returns.
    ///
    /// - Returns: why it is not, and what helps.
    func write(_ memory: AgentMemory) -> String? {
        do {
            try file.write(Data(memory.json.text.utf8))
            return nil
        } catch {
            return "the agent's file is not on the disk (\(error)); free some space, or make the directory writable"
        }
    }
}

/// The machine's clocks.
enum SystemClock {
    /// Names this run of the machine.
    static let boot: String = {
        let bytes = (try? FleetFiles.read("/proc/sys/kernel/random/boot_id", atMost: 100)) ?? nil
        return String(decoding: bytes ?? [], as: UTF8.self).filter { $0 != "\n" }
    }()

    static func seconds(_ clock: clockid_t) -> Double {
        var time = timespec()
        clock_gettime(clock, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    /// Whether something keeps the wall clock right, by the kernel's word.
    static var isSynchronised: Bool { CLinux_isClockSynchronised() != 0 }
}

extension Moment {
    static var now: Moment {
        Moment(
            uptime: SystemClock.seconds(CLOCK_BOOTTIME),
            wall: SystemClock.seconds(CLOCK_REALTIME),
            boot: SystemClock.boot
        )
    }
}
