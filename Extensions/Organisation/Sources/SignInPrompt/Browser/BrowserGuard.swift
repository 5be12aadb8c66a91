import Basics
import CLinux
import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) package import SharedDevice

/// A process that cleans up after a prompt with a browser. If the prompt is killed with SIGKILL, the guard ends the
/// browser and deletes its profile. Without the guard, the user's pages would stay open until the next prompt ends the
/// browser.
///
/// It detects the end by a pipe whose other end only the prompt has, so it cannot mistake another process for the
/// prompt. `PR_SET_PDEATHSIG` is not enough: its signal comes when the starting thread ends, reaches only one process
/// of the browser, and deletes nothing. If the guard is killed too, the next prompt does the work.
package final class BrowserGuard: Sendable {
    /// The command-line option that starts the program as a guard.
    package static let option = "guards-browser"
    /// The guard's descriptor of the pipe.
    private static let pipe: CInt = 3

    private let process: HelperProcess
    /// The prompt's end of the pipe.
    private let end: CInt

    /// Starts the guard of this process.
    ///
    /// - Throws: ``SharedDeviceError/Code/brokerFailed`` if it does not start.
    package init() throws(SharedDeviceError) {
        var ends: [CInt] = [-1, -1]
        guard CLinux_pipe(&ends) == 0 else { throw Self.failure(String(cString: strerror(errno))) }
        var settings = HelperProcess.Settings()
        settings.errors = .inherited
        settings.third = ends[0]
        // The guard must survive signals to the prompt's process group.
        settings.leadsGroup = true
        do throws(HelperProcess.Failure) {
            process = try HelperProcess(Self.program, ["--\(Self.option)"], settings)
        } catch {
            close(ends[0])
            close(ends[1])
            throw Self.failure(error.description)
        }
        close(ends[0])
        end = ends[1]
    }

    deinit { close(end) }

    /// Ends the guard after the browser has ended and its profile is deleted. Returns when the guard has exited.
    package func dismiss() async {
        process.kill()
        _ = await process.waitUntilEnd()
    }

    /// Runs the guard: returns when the prompt has ended and its remains are deleted. Warns of each failure to delete.
    package static func watch(_ root: String, warn: @escaping @Sendable (String) -> Void) async {
        // The guard must outlive the prompt, so it ignores the signals that terminal and session send to both.
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] { Glibc.signal(signal, SIG_IGN) }
        let prompt = ProcessDescriptor(getppid())
        await onSystemThread {
            var byte: UInt8 = 0
            while true {
                let count = read(pipe, &byte, 1)
                if count == 0 || count < 0 && errno != EINTR { break }
            }
            // At the end of a process the kernel may close the pipe before it releases the lock of the profile.
            _ = prompt?.hasEnded(by: .now + .seconds(10))
        }
        await BrowserProfile.removeLeftovers(of: root, warn: warn)
    }

    /// The path of this program. If its file was replaced, the path of the running one.
    private static var program: String {
        let path = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
        return access(path, X_OK) == 0 ? path : "/proc/self/exe"
    }

    private static func failure(_ reason: String) -> SharedDeviceError {
        SharedDeviceError(
            .brokerFailed,
            attempted: "watch over the browser",
            message: "the browser cannot be watched: \(reason)"
        )
    }
}
