package import Fleet
import FoundationEssentials
import Glibc
import SharedDevice
import StrictJSON

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
