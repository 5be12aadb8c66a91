import ArgumentParser
import Basics
import CLinux
package import Fleet
import FleetService
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

@main
struct SharedDeviceAgentCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-agent",
        abstract: "Carries out what the fleet's controller orders, and reports how this device stands.",
        discussion: """
            Talks to the broker on the bus and to the fleet's MQTT server. It can sign out and read, and nothing else. Prints “ready” at its \
            start; ends with SIGTERM or SIGINT.
            If the configuration, the key or its own file cannot be used, and a time limit without contact is known, it keeps that limit, \
            reports the problem, and receives no orders. When the configuration can be used again, it ends, and systemd starts it again.
            Exit status: 0 ended as asked; 64 wrong usage; 69 no bus; 78 configuration, key or state directory cannot be used, and no limit is known.
            """,
        version: ProjectVersion.line(of: "shared-device-agent")
    )

    @OptionGroup var program: FleetProgram

    func run() async throws { try await program.serve(AgentService.self, role: "agent") }
}

/// The file of an agent's memory. For one thread at a time; blocks it on the disk.
package struct AgentFile: Sendable {
    private static let limits = JSONLimits(size: 64 << 10, depth: 6, values: 200)

    private let file: AtomicFile

    package init(directory: String) { file = AtomicFile(path: directory + "/agent.json") }

    /// Reads the memory; an empty one if there is no file. Throws if it is unreadable: with an empty memory, the agent
    /// would carry out old orders again.
    package func read() throws(FleetRefusal) -> AgentMemory {
        guard let bytes = try FleetFiles.read(file.path, atMost: Self.limits.size) else { return AgentMemory() }
        do {
            return try AgentMemory(JSONValue(parsing: bytes, limits: Self.limits))
        } catch {
            throw FleetRefusal("\(file.path) is damaged (\(error)); \(Self.remedy)")
        }
    }

    private static let remedy =
        "remove it, and start the agent again: orders that still stand are then carried out once more"

    /// Moves an unreadable file aside and writes a new memory that records the damage. Even after a restart the agent
    /// then receives no orders, and keeps counting the time without contact.
    func begin(after damage: FleetRefusal) -> AgentMemory {
        // Adds a second name first, so that the file always exists: without it the agent would start as a new one.
        _ = unlink(file.path + ".damaged")
        _ = link(file.path, file.path + ".damaged")
        var memory = AgentMemory()
        memory.damage = "\(damage)".contains(Self.remedy) ? "\(damage)" : "\(damage); \(Self.remedy)"
        _ = write(memory)
        return memory
    }

    /// Replaces the file durably before it returns. Returns the reason of a failure, with the remedy.
    func write(_ memory: AgentMemory) -> String? {
        do {
            try file.write(memory.json.text.utf8)
            return nil
        } catch {
            return "the agent's file is not on the disk (\(error)); free some space, or make the directory writable"
        }
    }
}

/// The rules of an agent: its files, or the last known values if these are unusable. A time limit without contact is
/// kept in any case: a damaged file must not remove it (FL-7).
struct AgentRules {
    let configuration: FleetConfiguration?
    let policy: AgentState.Policy
    let memory: AgentMemory
    /// Whether only the configuration keeps the agent from connecting.
    let needsConfiguration: Bool

    init(
        _ read: Result<FleetConfiguration, FleetRefusal>,
        _ file: AgentFile,
        _ log: (String) -> Void,
        checksKey: Bool
    ) throws(FleetRefusal) {
        let known = Result { () throws(FleetRefusal) in try file.read() }
        let (written, remembered) = (try? read.get().policy, try? known.get().policy)
        policy = written ?? remembered ?? AgentState.Policy()
        let mustKeep = policy.contactTimeout != nil
        do throws(FleetRefusal) {
            memory = try known.get()
        } catch {
            guard mustKeep else { throw error }
            memory = file.begin(after: error)
        }
        var usable: FleetConfiguration?
        var problem = memory.damage
        do throws(FleetRefusal) {
            let configuration = try read.get()
            // With a limit to keep, the key is checked only before each connection.
            if checksKey, !mustKeep, let objection = FleetFiles.objection(toKey: configuration.key) {
                throw FleetRefusal(objection)
            }
            usable = configuration
        } catch {
            guard mustKeep else { throw error }
            problem = [problem, error.description].compactMap { $0 }.joined(separator: "; ")
        }
        configuration = problem == nil ? usable : nil
        needsConfiguration = usable == nil && memory.damage == nil
        guard let problem else { return }
        let remedy = needsConfiguration ? "correct it" : "correct it, and start the agent again"
        log("\(problem); until then the agent keeps the time limit without contact, and receives no orders: \(remedy)")
    }
}

enum SystemClock {
    /// The ID of this boot.
    static let boot: String = {
        let bytes = (try? FleetFiles.read("/proc/sys/kernel/random/boot_id", atMost: 100)) ?? nil
        return String(decoding: bytes ?? [], as: UTF8.self).filter { $0 != "\n" }
    }()

    /// Whether the kernel reports the wall clock as synchronised.
    static var isSynchronised: Bool { CLinux_isClockSynchronised() != 0 }
}

extension Moment {
    static var now: Moment {
        Moment(uptime: seconds(of: CLOCK_BOOTTIME), wall: seconds(of: CLOCK_REALTIME), boot: SystemClock.boot)
    }
}
