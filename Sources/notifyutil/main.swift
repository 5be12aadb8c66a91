import Glibc

exit(NotifyUtility(CommandLine.arguments.dropFirst()).run())
