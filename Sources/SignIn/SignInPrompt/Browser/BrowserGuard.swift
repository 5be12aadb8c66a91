import CLinux
import DBusTransport
import FoundationEssentials
import Glibc
package import SharedDevice

/// A process beside a prompt that has opened a browser. It waits for the prompt's end, and where that came by SIGKILL it ends the browser and deletes its
/// profile, as the next prompt would: until then somebody's pages would stand open.
///
/// It learns of the end by a pipe whose other end nobody but the prompt has, so that it takes no other process for it. A signal that the kernel sends
/// with the end of a parent (`PR_SET_PDEATHSIG`) would not do: it comes when the starting thread ends, reaches one process of the browser, and deletes
/// nothing. Where this process is killed, too, the next prompt does its work.
package final class BrowserGuard: Sendable {
    /// The option of the program that makes it a guard.
    package static let option = "guards-browser"
    /// Which of the guard's descriptors the pipe is.
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
        // What ends the prompt's group is not to end this.
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

    /// The browser has ended, and its profile is gone. On return the guard has ended, too.
    package func dismiss() async {
        process.kill()
        _ = await process.waitUntilEnd()
    }

    /// The guard itself: returns when the prompt has ended, and what it left is gone.
    ///
    /// - Parameters:
    ///   - root: the directory of all browsers' profiles of this user.
    ///   - warn: is told of what could not be removed.
    package static func watch(_ root: String, warn: @escaping @Sendable (String) -> Void) async {
        // It ends with the prompt, whatever the terminal or the session sends to both.
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] { Glibc.signal(signal, SIG_IGN) }
        let prompt = ProcessDescriptor(getppid())
        await onSystemThread {
            var byte: UInt8 = 0
            while true {
                let count = read(pipe, &byte, 1)
                if count == 0 || count < 0 && errno != EINTR { break }
            }
            // The kernel closes what the prompt had open one by one, and the pipe perhaps before the lock of its profile.
            _ = prompt?.hasEnded(by: .now + .seconds(10))
        }
        await BrowserProfile.removeLeftovers(of: root, warn: warn)
    }

    /// This very program: of one that was replaced meanwhile, the file that still runs.
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
