import Glibc

exit(NotifyUtility.run(CommandLine.unsafeArgv, count: Int(CommandLine.argc)).rawValue)
