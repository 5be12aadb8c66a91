import SharedDevice

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
    func signIn(
        _ name: String?,
        showsPage: Bool,
        password: @escaping @Sendable (String) async -> String?
    ) async {
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
        guard let account = current else { return say("nobody is signed in") }
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
        guard case .open(let account) = screen.state else { return say("no account is signed in to work for") }
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
            events.record(.worked, account: account.username, detail: deed, orders: orders, tokenMilliseconds: waited)
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
        case .unknown, .failed, .closed: false
        case .checking, .changing, .nobody, .open: true
        }
    }
}
