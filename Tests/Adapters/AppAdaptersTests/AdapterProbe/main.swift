import AppAdapters
import DBusTransport
import DeviceConfiguration
import Foundation
import Glibc
import SharedDevice

// An adapter that is killed at the point that its arguments name: adapter-probe BUS DIRECTORY POINT. Its command writes into the data of
// whoever is at the device, and never ends by itself.

/// Writes a line at once, because the process may be killed right after it.
@Sendable func say(_ line: String) {
    _ = Array("\(line)\n".utf8).withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
}

let (bus, directory, deadlyPoint) = (CommandLine.arguments[1], CommandLine.arguments[2], CommandLine.arguments[3])
let data = "\(directory)/data"
var settings = OwnedCommand.Settings(
    mark: "\(directory)/state",
    command: ["/bin/sh", "-c", "echo started; echo \"$$\" >\(data)/process; while :; do sleep 1; done"]
)
settings.directories = [data]
let adapter = Adapter(
    program: OwnedCommand(settings),
    start: .always,
    paths: [data],
    user: geteuid(),
    log: { say("log \($0)") },
    shown: { say("shown \($0)") },
    checkpoint: { if "\($0)" == deadlyPoint { kill(getpid(), SIGKILL) } }
)
let application = SharedDeviceApplication(
    identifier: "org.example.adapter",
    bus: .address(bus),
    stateDirectory: "\(directory)/state"
)
try await adapter.follow(application)
