package import SharedDevice

/// Follows the account of the device: the pattern that every app on a shared device needs, around a ``UserWorkspace``.
///
/// For each change it hides the screen, stops the work under way and waits for its end, forgets and deletes the previous users' data,
/// reports that, and only then loads and shows the current user's data. If a deletion fails, it tries again, and shows nothing until it has
/// succeeded. It also shows nothing while the broker does not answer.
actor AccountLoop {
    let application: SharedDeviceApplication
    let workspace: any UserWorkspace
    let events: EventLog

    var screen: Screen
    /// Grows whenever the screen may no longer show the same user's data. Code that awaited something compares it, and drops stale results.
    private(set) var generation: UInt64 = 0
    private(set) var current: Account?
    var unit: Task<String, any Error>?
    var longWork: (account: Account, task: Task<String, any Error>)?
    private var following: Task<Bool, Never>?
    private var hasFirst = false
    private let onlyCleansUp: Bool
    private var hasCleanedUp = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    /// - Parameter onlyCleansUp: whether the app ends after its cleanup, and shows nobody's data.
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

    /// Runs until the task is cancelled, and stops the work before it returns. The user's data stays for the next start.
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
            // The next sequence begins with what is left to delete.
            if isToBeRetried { try? await Task.sleep(for: .seconds(1)) }
        }
        await hide(.closed)
    }

    /// Follows the account. Returns true if a cleanup failed, and false if the task was cancelled: the app ends, or the broker was lost. In
    /// each case a new sequence begins with the current state.
    private func followUntilTrouble() async -> Bool {
        let onFailure: @Sendable (SharedDeviceError) -> Void = { error in Task { await self.brokerFailed(error) } }
        for await change in application.accountChanges(onFailure: onFailure) {
            hasFirst = true
            // In a task of its own, so that a deletion goes on if the broker is lost and this task is cancelled.
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
            // This tells those who watch the round. If the broker does not answer, the deletion begins all the same.
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

    /// Hides the screen, because nobody can say who is signed in, and starts the loop again, which reports the current state as soon as the
    /// broker answers.
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

    /// Removes what is shown and what is cached for showing, at once.
    private func hide(_ state: Screen.State) async {
        generation += 1
        if screen.state == state, screen.display == nil, screen.notice == nil { return }
        screen.display = nil
        screen.notice = nil
        screen.state = state
        await show()
    }

    /// Shows the screen; while somebody is signed in, with their current data.
    func show() async {
        var account: Account?
        if case .open(let opened) = screen.state {
            account = opened
            let asked = generation
            do {
                let display = try await workspace.display()
                // Another user may have come meanwhile.
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

    /// Shows the person a message.
    func say(_ text: String) {
        screen.notice = text
        if Console.isTerminal { return draw() }
        Console.write(text.split(separator: "\n").map { "- \($0)\n" }.joined())
    }

    /// - Parameter asked: the generation in which the command was given. The error may name that user: nobody else sees it.
    func fail(_ error: any Error, account: String, asked: UInt64) async {
        events.record(.failed, account: account, detail: "\(error)")
        if asked == generation { say("! \(error)") }
        if let error = error as? SharedDeviceError, error.code == .brokerUnavailable { await brokerFailed(error) }
    }

    // MARK: Waiting

    /// Whether the screen is final for now: it shows the current user's data, or says why it shows nothing.
    var isSettled: Bool {
        switch screen.state {
        case .checking, .changing: false
        case .unknown, .nobody, .open, .failed, .closed: true
        }
    }

    /// Lets a command wait for the loop, so that a script's lines do the same as a person's. It waits five seconds at most, because a change
    /// that is undone at once is never reported.
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

    /// Waits until the data of earlier users is deleted and the broker has the receipt.
    func waitUntilCleanedUp() async {
        while !hasCleanedUp { await withCheckedContinuation { waiting.append($0) } }
    }

    private func wake() {
        for continuation in waiting { continuation.resume() }
        waiting = []
    }
}

/// The user data of an app, on disk and in memory: the part that differs from app to app.
///
/// ``AccountLoop`` calls it in the order that a shared device needs: after ``close()``, with no work under way, it calls only
/// ``deleteData(of:)`` until the next ``open(for:)``.
package protocol UserWorkspace: Actor {
    /// Removes the half-done work of an earlier run, of any user. Called once, before all other functions.
    func prepare() throws

    /// Loads the account's data, or makes a place for it.
    func open(for account: Account) throws

    /// Renders the account's data for the screen.
    func display() throws -> Display

    /// Does one unit of work and says what it was.
    func work() throws -> String

    /// Does longer work until its task is cancelled. Returns, once the work has really ended, how far it came.
    func workUntilCancelled() async throws -> String

    /// Forgets what is in memory.
    func close()

    /// Deletes all data of the account, complete or half-written, and returns how much it was. It also works after an interrupted attempt, and
    /// if there is no data. On return not a byte is left. If it throws, it is called again.
    func deleteData(of account: Account) throws -> String
}

/// A text that apps write into each piece of a user's data, so that a search finds data that should be gone.
package enum DataMarker {
    /// The marker of this account's data. No other account has it, and it contains neither of the person's names.
    package static func text(for account: Account) -> String { "private-data-of-\(objectIdentifier(account))" }

    /// The person's half of the identifier. The other half names the organisation.
    package static func objectIdentifier(_ account: Account) -> String {
        String(account.identifier.prefix { $0 != "." })
    }

    /// How data names its owner, for people: name, user name and marker.
    package static func signature(of account: Account) -> String {
        "\(account.displayName ?? account.username) <\(account.username)> \(text(for: account))"
    }
}
