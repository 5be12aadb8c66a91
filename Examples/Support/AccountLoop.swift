public import SharedDevice

/// Follows the account of the device around a ``UserWorkspace``, for an app that shows a screen and works for the
/// person.
///
/// ``SharedDeviceApplication/follow(_:_:)`` defines the order: hide, delete the previous users' data, report that,
/// show. This type adds the app's part: it stops the work in progress and waits for its end, clears the memory, and
/// draws the screen.
actor AccountLoop {
    let application: SharedDeviceApplication
    let workspace: any UserWorkspace
    let events: EventLog
    let service: OrdersService?

    var screen: Screen
    /// Grows whenever the screen may no longer show the same user's data. Code compares it after an `await`, and drops
    /// stale results.
    private(set) var generation: UInt64 = 0
    private(set) var current: Account?
    var unit: Task<String, any Error>?
    var longWork: (account: Account, task: Task<String, any Error>)?
    /// The change whose data is being deleted, until that is reported.
    private var cleaning: AccountChange?
    private let onlyCleansUp: Bool
    private var hasCleanedUp = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    /// - Parameter onlyCleansUp: Whether the app ends after its cleanup, without showing data.
    init(
        _ application: SharedDeviceApplication,
        workspace: any UserWorkspace,
        title: String,
        events: EventLog,
        service: OrdersService? = nil,
        onlyCleansUp: Bool = false
    ) {
        self.service = service
        self.onlyCleansUp = onlyCleansUp
        self.application = application
        self.workspace = workspace
        self.events = events
        screen = Screen(title: title)
    }

    // MARK: The account

    /// Runs until the task is cancelled, and stops the work before it returns. The user's data stays for the next
    /// start.
    ///
    /// - Throws: ``SharedDeviceError`` if the step could not be registered.
    func run() async throws {
        var options = CleanupCoordinator.Options()
        // A person waits in front of the device.
        options.longestWait = .seconds(1)
        let cleanup = CleanupCoordinator(options: options)
        try cleanup.register("data") { try await self.deleteData($0) }
        await show()
        await application.follow(cleanup) { try await self.take($0) }
    }

    private func take(_ state: AccountState) async throws {
        switch state {
        case .hidden(let reason):
            await hide(reason)
            await stopWork()
            await workspace.close()
        case .nobody, .open:
            noteCleanup()
            if onlyCleansUp {
                hasCleanedUp = true
                await hide(.stopped)
            } else {
                try await open(state.account)
            }
        }
        wake()
    }

    /// The cleanup step. It runs while the screen is hidden and no work is in progress.
    private func deleteData(_ cleanup: Cleanup) async throws -> String {
        if cleaning == nil { events.record(.changed, cleanup.change) }
        cleaning = cleanup.change
        var amounts: [String] = []
        for account in cleanup.accounts {
            let amount = try await workspace.deleteData(of: account)
            amounts.append(amount)
            events.record(.dataDeleted, account: account.username, detail: amount)
        }
        return amounts.joined(separator: "; ")
    }

    /// Records the cleanup. Data may be shown now, which means that the cleanup has been reported.
    private func noteCleanup() {
        if let cleaning { events.record(.cleaned, cleaning) }
        cleaning = nil
    }

    private func open(_ account: Account?) async throws {
        screen.device = await application.getDeviceInformation()
        if let account { try await workspace.open(for: account) }
        current = account
        generation += 1
        screen.state = account.map(AccountState.open) ?? .nobody
        await show()
    }

    /// Hides the screen, and clears its cache at once.
    private func hide(_ reason: AccountState.HiddenReason) async {
        switch reason {
        case .starting, .changing, .stopped: break
        case .unknown(let error) where error.code == .brokerUnavailable:
            events.record(.waitingForBroker, detail: "\(error)")
        case .unknown(let error): events.record(.failed, detail: "\(error)")
        default: events.record(.failed, detail: reason.description)
        }
        generation += 1
        if screen.state == .hidden(reason), screen.display == nil, screen.notice == nil { return }
        screen.display = nil
        screen.notice = nil
        screen.state = .hidden(reason)
        await show()
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

    /// Shows the screen; while a user is signed in, with the current data.
    func show() async {
        var account: Account?
        if let opened = screen.state.account {
            account = opened
            let asked = generation
            do {
                let display = try await workspace.display()
                // The user may have changed during the await.
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
        let prompt = screen.state == .hidden(.stopped) ? "" : "> "
        Console.write(Console.isTerminal ? screen.terminalText + prompt : screen.plainText)
    }

    func say(_ text: String) {
        screen.notice = text
        if Console.isTerminal { return draw() }
        Console.write(text.split(separator: "\n").map { "- \($0)\n" }.joined())
    }

    /// - Parameter asked: The generation in which the command was given. The error may name the user of that
    ///   generation, so it is not shown to a later user.
    func fail(_ error: any Error, account: String?, asked: UInt64) {
        events.record(.failed, account: account, detail: "\(error)")
        if asked == generation { say("! \(error)") }
    }

    // MARK: Waiting

    /// Whether the screen is final for now: it shows the current user's data, or says why it shows nothing.
    var isSettled: Bool { screen.state != .hidden(.starting) && screen.state != .hidden(.changing) }

    /// Makes a command wait for the loop, so that a script's lines have the same effect as a person's. It waits at most
    /// five seconds, because a change that is undone at once is never reported.
    func settle(until isThere: () -> Bool) async {
        let end = ContinuousClock.now + .seconds(5)
        let patience = Task {
            try await Task.sleep(until: end, clock: .continuous)
            self.wake()
        }
        defer { patience.cancel() }
        while !isThere(), ContinuousClock.now < end { await withCheckedContinuation { waiting.append($0) } }
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
/// ``AccountLoop`` calls it in the order that a shared device needs: after ``close()``, with no work in progress, it
/// calls only ``deleteData(of:)`` until the next ``open(for:)``.
public protocol UserWorkspace: Actor {
    /// Removes incomplete work of an earlier run, of any user. Called once, before all other functions.
    func prepare() throws

    /// Loads the account's data, or creates a place for it.
    func open(for account: Account) throws

    /// Renders the account's data for the screen.
    func display() throws -> Display

    /// Does one unit of work and describes it.
    func work() throws -> String

    /// Does longer work until its task is cancelled. Once the work has really ended, returns how far it came.
    func workUntilCancelled() async throws -> String

    func close()

    /// Deletes all data of the account, complete or half-written, and returns how much it was. Also works after an
    /// interrupted attempt, and without data. On return no byte remains. If it throws, it is called again.
    func deleteData(of account: Account) throws -> String
}

/// A text that apps write into each piece of a user's data, so that a search finds data that should be deleted.
public enum DataMarker {
    /// The marker of this account's data. It is unique to the account, and contains neither of the person's names.
    public static func text(for account: Account) -> String { "private-data-of-\(objectIdentifier(account))" }

    /// The person's half of the identifier. The other half names the organisation.
    public static func objectIdentifier(_ account: Account) -> String {
        String(account.identifier.prefix { $0 != "." })
    }

    /// The owner's name in the data, for people: name, user name and marker.
    public static func signature(of account: Account) -> String {
        "\(account.displayName ?? account.username) <\(account.username)> \(text(for: account))"
    }
}

/// The commands of a person or a test, one at a time.
extension AccountLoop {
    /// Waits for the loop to settle, then shows the screen again, with current device information from the broker.
    func refresh() async {
        await settle { isSettled }
        let device = await application.getDeviceInformation()
        screen.device = device
        screen.notice = nil
        if let problem = device.problem { screen.notice = "! \(problem)" }
        await show()
    }

    private var scopes: [String] { [service == nil ? "work" : OrdersService.scope] }

    /// Signs a user in; returns when the app has followed.
    ///
    /// - Parameters:
    ///   - name: The user name; with `nil`, the device's own prompt asks for it.
    ///   - showsPage: Whether that prompt asks in a window.
    ///   - password: Asks for the password of a name.
    func signIn(_ name: String?, showsPage: Bool, password: @escaping @Sendable (String) async -> String?) async {
        await settle { isSettled }
        let asked = generation
        events.record(.signingIn, account: name)
        do {
            var parameters = InteractiveTokenParameters(scopes: scopes, loginHint: name)
            if name != nil {
                parameters.prompt = { name in
                    guard let name, let password = await password(name) else { return nil }
                    return Credentials(username: name, password: password)
                }
            }
            parameters.showsPage = showsPage
            // A person in front of the device soon learns which app is not ready.
            parameters.patience = .seconds(2)
            let account = try await application.acquireToken(with: parameters).account
            events.record(.signedIn, account: account.username)
            await settle { isSettled && (current == account || !isKnown) }
        } catch {
            fail(error, account: name, asked: asked)
        }
    }

    /// Signs the user out of the whole device; returns when the app has followed.
    func signOut() async {
        await settle { isSettled }
        guard let account = current else { return say("no account is signed in") }
        let asked = generation
        events.record(.signingOut, account: account.username)
        do {
            try await application.signout(with: account)
            events.record(.signedOut, account: account.username)
            await settle { isSettled && (current != account || !isKnown) }
        } catch {
            fail(error, account: account.username, asked: asked)
        }
    }

    /// Does one more unit of work for the user, and starts the longer work if none is in progress.
    func work() async {
        await settle { isSettled }
        guard let account = screen.state.account else { return say("no account is signed in to work for") }
        let asked = generation
        do {
            // Single sign-on: this app gets its token silently, whichever app signed the person in.
            let parameters = SilentTokenParameters(scopes: scopes, account: account)
            let begin = MonotonicClock.nanoseconds
            let token = try await application.acquireTokenSilent(with: parameters)
            let waited = Double(MonotonicClock.nanoseconds - begin) / 1_000_000
            guard asked == generation else { return }
            let orders = try await service?.orders(showing: token.accessToken)
            guard asked == generation else { return }
            let unit = Task { [workspace] in try await workspace.work() }
            self.unit = unit
            defer { self.unit = nil }
            let deed = try await unit.value
            guard asked == generation else { return }
            events.record(.worked, account: account.username, orders: orders, tokenMilliseconds: waited, detail: deed)
            if longWork == nil {
                longWork = (account, Task { [workspace] in try await workspace.workUntilCancelled() })
            }
            screen.notice = nil
            await show()
        } catch {
            fail(error, account: account.username, asked: asked)
        }
    }

    private var isKnown: Bool {
        switch screen.state {
        case .hidden(.starting), .hidden(.changing), .nobody, .open: true
        case .hidden: false
        }
    }
}
