// The program that tests run as other users next to notifyd. It runs until it is killed or its parent ends.
//
//   hostile-notifier honest BUS PEER-USER NAME…   uses notify(3) and measures, see HonestProcess
//   hostile-notifier DEED BUS SECRET…             attacks, see Deeds; prints “ready” when it is at work, and a line
//   that begins with
//                                                 LEAK for each message of notifyd that has a secret, and for each
//                                                 forbidden reply
import Foundation
import Glibc

/// Writes without stdio: a line in its buffer would be lost if the process is killed.
func say(_ text: String) {
    let line = Array("\(text)\n".utf8)
    _ = write(STDOUT_FILENO, line, line.count)
}

// Allows as many connections as the bus grants.
var files = rlimit()
getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
files.rlim_cur = files.rlim_max
setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)

let arguments = CommandLine.arguments.dropFirst()
guard arguments.count >= 2 else {
    say("usage: hostile-notifier honest|DEED BUS …")
    exit(64)
}
let (mode, address, rest) = (arguments[1], arguments[2], Array(arguments.dropFirst(2)))
if mode == "honest" {
    try HonestProcess(address, peer: rest[0], quiet: Array(rest.dropFirst())).run()
} else if let deed = Deed(rawValue: mode) {
    Attacker(address, secrets: rest).carryOut(deed)
} else {
    say("there is no deed “\(mode)”")
    exit(64)
}
