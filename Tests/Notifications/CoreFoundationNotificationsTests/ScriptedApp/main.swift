// Each line of the standard input is a command (`Commands.swift`), done on a thread of its own and answered with `done`; the
// main thread runs its run loop. Callbacks print a line that begins with `heard`.
import CoreFoundation
import Foundation

Thread.detachNewThread {
    while let line = readLine() {
        perform(line)
        say("done")
    }
    exit(0)
}
CFRunLoopRun()
