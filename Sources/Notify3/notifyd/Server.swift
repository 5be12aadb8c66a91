import Basics
import DBus
import Glibc
import NotifyCenter
import Synchronization

/// Serves until a signal ends the process. The main thread waits for the signals, which all other threads block.
enum Server {
    static func run(_ invocation: Invocation) -> CInt {
        // Before the first thread starts, so that all threads inherit the mask.
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2] { sigaddset(&signals, number) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        // Otherwise a write to standard error would end the process if the reader is gone.
        signal(SIGPIPE, SIG_IGN)
        start(invocation)
        while true {
            var number: CInt = 0
            guard sigwait(&signals, &number) == 0 else { continue }
            if number == SIGTERM || number == SIGINT { return 0 }
            take(number)
        }
    }

    private struct State {
        var service: DaemonService?
        /// Signals that arrived during the start. notifyd carries them out afterwards, because it may have read the
        /// configuration before they arrived.
        var early: Set<CInt> = []
    }

    private static let state = Locked(State())

    private static func start(_ invocation: Invocation) {
        Task(priority: .medium) {
            do {
                // When the bus is back, the first process that needs notifyd starts another one. Or its service manager
                // does, because this exit is a failure.
                let bus = invocation.bus(starter: ProcessEnvironment.value("DBUS_STARTER_ADDRESS"))
                let service = try await DaemonService.start(on: bus, invocation.configuration) { exit(EX_UNAVAILABLE) }
                let early = state.withLock { state in
                    state.service = service
                    return state.early
                }
                for signal in early.sorted() { await carryOut(signal, service) }
            } catch {
                Diagnostics.write("\(error)")
                exit(error is DBusError ? EX_UNAVAILABLE : error is ConfigurationFileError ? EX_NOINPUT : EX_OSERR)
            }
        }
    }

    private static func take(_ signal: CInt) {
        let service = state.withLock { state in
            if state.service == nil { state.early.insert(signal) }
            return state.service
        }
        guard let service else { return }
        Task(priority: .medium) { await carryOut(signal, service) }
    }

    private static func carryOut(_ signal: CInt, _ service: DaemonService) async {
        switch signal {
        case SIGHUP: await service.reload()
        case SIGUSR1: await service.writeStatus(isLong: false)
        default: await service.writeStatus(isLong: true)
        }
    }
}
