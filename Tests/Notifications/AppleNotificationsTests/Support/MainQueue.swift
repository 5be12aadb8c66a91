import Dispatch

/// Whether this runs on the main queue. Not `Thread.isMainThread`: in a program with an `async` main, such as the tests, Linux has
/// another thread run the main queue.
func isOnMainQueue() -> Bool { MainQueue.isCurrent }

private enum MainQueue {
    private static let key: DispatchSpecificKey<Bool> = {
        let key = DispatchSpecificKey<Bool>()
        DispatchQueue.main.setSpecific(key: key, value: true)
        return key
    }()

    static var isCurrent: Bool { DispatchQueue.getSpecific(key: key) == true }
}
