import Glibc

/// An app that cleans up, for tests that need a process to crash. It kills itself with SIGKILL at POINT.
///
///     steps DIRECTORY [POINT]         three steps over the files in DIRECTORY/data, without a broker
///     probe BUS DIRECTORY [POINT]     follows the account of a device
///     remove BASE IDENTIFIER [POINT] [UID]  removes an account's directory, as another user if UID is given
///     list PATH                       lists a directory until it is gone
///
/// Returns if the arguments are none of these.
func runCleanupProbe(_ arguments: [String]) async throws {
    func argument(_ index: Int) -> String { index < arguments.count ? arguments[index] : "" }
    switch argument(0) {
    case "steps": await runSteps(in: argument(1), deadlyPoint: argument(2))
    case "probe": try await follow(bus: argument(1), directory: argument(2), deadlyPoint: argument(3))
    case "remove": await remove(base: argument(1), identifier: argument(2), deadlyPoint: argument(3), user: argument(4))
    case "list": list(argument(1))
    default: break
    }
}
