import SharedDevice

/// The commands of a person or a test, one at a time.
extension AccountLoop {
    /// Shows the screen again, once the loop knows whose data it may show, and asks the broker whether it still answers.
    func refresh() async {
        await settle { isSettled }
        let device = await application.getDeviceInformation()
        screen.device = device
        screen.notice = nil
        if let problem = device.problem { screen.notice = "! \(problem)" }
        await show()
    }

    /// Signs somebody in; returns when the app has followed.
    func signIn(_ name: String, password: @escaping @Sendable () async -> String?) async {
        await settle { isSettled }
        let asked = generation
        events.record(.signingIn, account: name)
        do {
            var parameters = InteractiveTokenParameters(scopes: ["work"], loginHint: name) { name in
                guard let name, let password = await password() else { return nil }
                return Credentials(username: name, password: password)
            }
            // A person in front of the device is told soon which app is not ready.
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

    /// Does one more unit of work for the user, and starts the longer work if none is under way.
    func work() async {
        await settle { isSettled }
        guard case .open(let account) = screen.state else { return say("there is nobody to work for") }
        let asked = generation
        do {
            // Single sign-on: whichever app signed the person in, this app gets its token without asking anybody.
            let parameters = SilentTokenParameters(scopes: ["work"], account: account)
            _ = try await application.acquireTokenSilent(with: parameters)
            guard asked == generation else { return }
            let unit = Task { [workspace] in try await workspace.work() }
            self.unit = unit
            defer { self.unit = nil }
            let deed = try await unit.value
            guard asked == generation else { return }
            events.record(.worked, account: account.username, detail: deed)
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
