// An app that cleans up, for tests that need a process to crash:
//
//   cleanup-probe steps DIRECTORY [POINT]      three steps over the files in DIRECTORY/data, without a broker
//   cleanup-probe follow BUS DIRECTORY [POINT] follows the account of a device
//   cleanup-probe remove BASE IDENTIFIER [POINT] [UID]  removes an account's directory, as another user if UID is given
//   cleanup-probe list PATH                    lists a directory until it is gone
//
// It kills itself with SIGKILL at POINT.
import Glibc

let arguments = Array(CommandLine.arguments.dropFirst())
func argument(_ index: Int) -> String { index < arguments.count ? arguments[index] : "" }

switch argument(0) {
case "steps": await runSteps(in: argument(1), deadlyPoint: argument(2))
case "follow": try await follow(bus: argument(1), directory: argument(2), deadlyPoint: argument(3))
case "remove": await remove(base: argument(1), identifier: argument(2), deadlyPoint: argument(3), user: argument(4))
case "list": list(argument(1))
default: exit(64)
}
