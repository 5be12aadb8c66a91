extension Schedule {
    /// The same without one of its steps.
    func without(_ index: Int) -> Schedule {
        var rest = steps
        rest.remove(at: index)
        return Schedule(seed: seed, isStrict: isStrict, steps: rest)
    }

    /// Whether no step waits for what cannot come: for an app that is dead or stopped, or while the broker is.
    var isSensible: Bool {
        var halted: Set<Int> = []
        var isServed = true
        for step in steps {
            switch step {
            case .kill(let app), .stop(let app): halted.insert(app)
            case .start(let app), .resume(let app): halted.remove(app)
            case .killBroker, .stopBroker: isServed = false
            case .startBroker, .resumeBroker: isServed = true
            case .killCleaning(let app):
                guard isServed, !halted.contains(app) else { return false }
                halted.insert(app)
            case .untilAnswered, .becomeStrict: guard isServed else { return false }
            case .untilCleaned, .untilShown: guard isServed, halted.isEmpty else { return false }
            case .signIn, .signOut, .signOutAnyone, .token, .ask, .work, .restartBus, .pause: break
            }
        }
        return true
    }
}
