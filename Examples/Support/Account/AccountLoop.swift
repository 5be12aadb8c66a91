import SharedDevice

/// Follows the account of the device: the pattern that every app on a shared device needs, over a ``UserWorkspace``.
///
/// For each change it hides the screen, stops work under way and waits for its end, forgets and deletes the previous users'
/// data, reports that, and only then loads and shows what the current user has. What cannot be deleted is tried again, and
/// until then nobody sees anything. While the broker does not answer, nobody sees anything either.
actor AccountLoop {
    let application: SharedDeviceApplication
    let workspace: any UserWorkspace
    let events: EventLog

    var screen: Screen
    /// Counts what ends a user's time in front of the screen; what awaited meanwhile is stale.
    private(set) var generation: UInt64 = 0
    private(set) var current: Account?
    var unit: Task<String, any Error>?
    var longWork: (account: Account, task: Task<String, any Error>)?
    private var following: Task<Bool, Never>?
    private var hasFirst = false
    private let onlyCleansUp: Bool
    private var hasCleanedUp = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    /// - Parameter onlyCleansUp: the app has no user: it shows nothing of anybody.
    init(
        _ application: SharedDeviceApplication,
        workspace: any UserWorkspace,
        title: String,
        events: EventLog,
        onlyCleansUp: Bool = false
    ) {
        self.onlyCleansUp = onlyCleansUp
        self.application = application
        self.workspace = workspace
        self.events = events
        screen = Screen(title: title)
    }

    // MARK: The loop

    /// Runs until the task is cancelled. The work has ended then, and the data of the user stays for the next start.
    func run() async {
        await show()
        while !Task.isCancelled {
            hasFirst = false
            let attempt = Task { await self.followUntilTrouble() }
            following = attempt
            let isToBeRetried = await withTaskCancellationHandler {
                await attempt.value
            } onCancel: {
                attempt.cancel()
            }
            if case .open = screen.state, !Task.isCancelled { await hide(.checking) }
            await stopWork()
            await workspace.close()
            // Its first answer names again what could not be deleted.
            if isToBeRetried { try? await Task.sleep(for: .seconds(1)) }
        }
        await hide(.closed)
    }

    /// Returns whether a cleanup failed; otherwise the task was cancelled, at the app's end or because the broker was lost. A
    /// new sequence begins with where things stand, which is what the app needs to know then.
    private func followUntilTrouble() async -> Bool {
        let onFailure: @Sendable (SharedDeviceError) -> Void = { error in Task { await self.brokerFailed(error) } }
        for await change in application.accountChanges(onFailure: onFailure) {
            hasFirst = true
            // Not in this task: a deletion that has begun is not given up because the broker goes away.
            guard await Task(operation: { await self.follow(change) }).value else { return true }
        }
        return false
    }

    private func follow(_ change: AccountChange) async -> Bool {
        events.record(.changed, change)
        current = change.current
        await hide(change.previousAccounts.isEmpty ? .checking : .changing)
        await stopWork()
        await workspace.close()
        do {
            // For those who watch the round; a broker that does not answer right now is no reason to wait with the deletion.
            try? await application.cleanupBegan(change)
            var amounts: [String] = []
            for account in change.previousAccounts {
                let amount = try await workspace.deleteData(of: account)
                amounts.append(amount)
                events.record(.dataDeleted, account: account.username, detail: amount)
            }
            try await application.cleanupDone(change, detail: amounts.joined(separator: "; "))
            if !change.previousAccounts.isEmpty { events.record(.cleaned, change) }
            if onlyCleansUp {
                hasCleanedUp = true
                await hide(.closed)
                wake()
                return true
            }
            screen.device = await application.getDeviceInformation()
            if let account = change.current { try await workspace.open(for: account) }
            generation += 1
            screen.state = change.current.map(Screen.State.open) ?? .nobody
            await show()
            wake()
            return true
        } catch {
            events.record(.failed, detail: "could not finish the change of users: \(error)")
            try? await application.cleanupFailed(change, reason: "\(error)")
            await hide(.failed("could not finish the change of users: \(error)"))
            wake()
            return false
        }
    }

    /// Nobody can say who is signed in: the screen is hidden, and the loop starts over, to hear where things stand as soon as
    /// the broker answers again.
    func brokerFailed(_ error: SharedDeviceError) async {
        if case .unknown = screen.state { return }
        events.record(error.code == .brokerUnavailable ? .waitingForBroker : .failed, detail: "\(error)")
        await hide(.unknown("\(error)"))
        wake()
        if hasFirst { following?.cancel() }
    }

    private func stopWork() async {
        unit?.cancel()
        longWork?.task.cancel()
        _ = await unit?.result
        if let (account, task) = longWork {
            longWork = nil
            switch await task.result {
            case .success(let detail): events.record(.workStopped, account: account.username, detail: detail)
            case .failure(let error): events.record(.failed, account: account.username, detail: "\(error)")
            }
        }
    }

    // MARK: The screen

    /// Whatever is shown or kept for showing goes, at once.
    private func hide(_ state: Screen.State) async {
        generation += 1
        if screen.state == state, screen.display == nil, screen.notice == nil { return }
        screen.display = nil
        screen.notice = nil
        screen.state = state
        await show()
    }

    /// Shows the screen, from the cached display where there is one.
    func show() async {
        var account: Account?
        if case .open(let opened) = screen.state {
            account = opened
            let asked = generation
            do {
                let display = try await workspace.display()
                // Somebody else may be in front of the screen by now.
                guard asked == generation else { return }
                screen.display = display
            } catch {
                guard asked == generation else { return }
                events.record(.failed, account: opened.username, detail: "\(error)")
                screen.notice = "! \(error)"
            }
        }
        draw()
        events.record(
            .screen,
            account: account?.username,
            items: account == nil ? nil : screen.display?.items,
            detail: screen.summary
        )
    }

    private func draw() {
        let prompt = screen.state == .closed ? "" : "> "
        Console.write(Console.isTerminal ? screen.terminalText + prompt : screen.plainText)
    }

    /// Tells the person something that is not data.
    func say(_ text: String) {
        screen.notice = text
        if Console.isTerminal { return draw() }
        Console.write(text.split(separator: "\n").map { "- \($0)\n" }.joined())
    }

    /// - Parameter asked: the generation at the command. The error may name who gave it, so it is told to nobody else.
    func fail(_ error: any Error, account: String, asked: UInt64) async {
        events.record(.failed, account: account, detail: "\(error)")
        if asked == generation { say("! \(error)") }
        if let error = error as? SharedDeviceError, error.code == .brokerUnavailable { await brokerFailed(error) }
    }

    // MARK: Waiting

    /// Whether it is known who is signed in, and the screen is that user's; or known that it is not to be known.
    var isSettled: Bool {
        switch screen.state {
        case .checking, .changing: false
        case .unknown, .nobody, .open, .failed, .closed: true
        }
    }

    /// Lets a command wait for the loop, so that the same lines do the same from a person and through a pipe. Five seconds at
    /// most: a change that was undone at once is none.
    func settle(until isThere: () -> Bool) async {
        let end = ContinuousClock.now + .seconds(5)
        let patience = Task {
            try await Task.sleep(until: end, clock: .continuous)
            self.wake()
        }
        defer { patience.cancel() }
        while !isThere(), ContinuousClock.now < end {
            await withCheckedContinuation { waiting.append($0) }
        }
    }

    /// Waits until nothing of earlier users is left, and the broker knows it.
    func waitUntilCleanedUp() async {
        while !hasCleanedUp { await withCheckedContinuation { waiting.append($0) } }
    }

    private func wake() {
        for continuation in waiting { continuation.resume() }
        waiting = []
    }
}
