// Each line of standard input is a command (`Commands.swift`). It runs on a separate thread and is answered with
// `done`. The main thread runs its run loop. Callbacks print a line that begins with `heard`.
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
