import Foundation
import Glibc

/// The program that tests run as other users next to notifyd. It runs until it is killed or its parent ends.
///
///     honest BUS PEER-USER NAME…   uses notify(3) and measures, see HonestProcess
///     DEED BUS SECRET…             attacks, see Deeds; prints “ready” when it is at work, and a line that begins with
///                                  LEAK for each message of notifyd that has a secret, and for each forbidden reply
func runHostileNotifier(_ arguments: [String]) throws {
    // Allows as many connections as the bus grants.
    var files = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
    files.rlim_cur = files.rlim_max
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)

    guard arguments.count >= 2 else {
        say("usage: hostile-client notifyd honest|DEED BUS …")
        exit(64)
    }
    let (mode, address, rest) = (arguments[0], arguments[1], Array(arguments.dropFirst(2)))
    if mode == "honest" {
        try HonestProcess(address, peer: rest[0], quiet: Array(rest.dropFirst())).run()
    } else if let deed = Deed(rawValue: mode) {
        Attacker(address, secrets: rest).carryOut(deed)
    } else {
        say("there is no deed “\(mode)”")
        exit(64)
    }
}
