import BrokerCore
import Foundation
import Identity
@_spi(Extensions) import SharedDevice

extension World {
    func run(_ step: ScheduledStep) {
        note("· \(step.action)")
        random = SplitMix64(seed: step.salt)
        act(step.action)
        oracle.check(self)
        progress(step.progress)
    }

    private func act(_ action: Action) {
        switch action {
        case .signIn(let app, let person, let isRight, let patience): signIn(app, person, isRight, patience)
        case .signOut(let app): signOut(app)
        case .token(let app, let refresh): token(app, refresh)
        case .work(let app): work(app)
        case .cancel(let app): call(app, .cancelSignIn(label: "label \(app)"))
        case .again(let app): sendAgain(app)
        case .startApp(let app): startApp(app)
        case .killApp(let app): killApp(app)
        case .dropConnection(let app): dropConnection(app)
        case .hang(let app): if slots[app].isRunning { slots[app].isHung = true }
        case .startEnforcer: startEnforcer()
        case .killEnforcer: killEnforcer()
        case .stepFails(let app): slots[app].process?.failures += 1
        case .startBroker: startBroker()
        case .killBroker: killBroker(isPowerCut: false)
        case .killBrokerAfter(let effects): if broker != nil { stop = Stop(effects: effects, isPowerCut: false) }
        case .cutPower: cutPower()
        case .cutPowerAfter(let effects): if broker != nil { stop = Stop(effects: effects, isPowerCut: true) }
        case .loseBus: loseBus()
        case .restoreBus: restoreBus()
        case .disk(let mode):
            diskMode = mode
            takeNote()
        case .provider(let mode):
            providerMode = mode
            if mode == .answers { networkIsBack() }
        case .revoke(let person): revoke(Setting.people[person])
        case .killService: killService()
        case .configure(let file): configure(file)
        case .pass(let seconds): advance(by: .seconds(seconds))
        case .sleep(let seconds): sleep(for: .seconds(seconds))
        case .setClock(let seconds): setClock(by: seconds)
        case .atSeat(let deed): atSeat(deed)
        case .atScreen(let deed): atScreen(deed)
        case .loseBroadcast(let app): slots[app].lostBroadcasts += 1
        case .waive(let home):
            let participant = Setting.homes[home]
            call(Self.administrator, .waive(app: participant.app, user: participant.user, session: nil, reason: "test"))
        case .signOutAnyone: call(Self.administrator, .signOutAnyone(identifier: nil, reason: "test"))
        case .stranger(let deed): strangerDoes(deed)
        case .settle: progress(200)
        }
    }

    /// An administrator writes the file and the matching manifests.
    func configure(_ file: Setting.File) {
        self.file = file
        if case .valid(let index) = file {
            manifests =
                index == Setting.enforced ? Setting.enforcedManifests : Setting.manifests(areProven: hasManyUsers)
            feed(.manifests(manifests))
        }
        readConfiguration()
    }

    /// Sets the wall clock. The broker notices by its watch, or on the next event.
    private func setClock(by seconds: Int) {
        now.wall += Double(seconds)
        clockShift += .seconds(seconds)
        oracle.clockSetAt = now.uptime
        organisation.clockIsSet(by: Double(seconds))
        for (index, incoming) in slots[Self.service].toBroker.enumerated() {
            guard case .request(let request) = incoming, case .providerEvents(let events) = request.call else {
                continue
            }
            let moved = Request.Call.providerEvents(events.map { $0.moved(by: Double(seconds)) })
            slots[Self.service].toBroker[index] = .request(request.calling(moved))
        }
        if random.chance(70) { feed(.time) }
    }

    func cutPower() {
        for index in Setting.apps { killApp(index) }
        killEnforcer()
        killBroker(isPowerCut: true)
        seat.sessions = [:]
        for index in homes.indices { homes[index].cutPower() }
        for index in slots.indices { slots[index].toBroker = [] }
    }

    // MARK: Apps

    @discardableResult
    private func call(_ index: Int, _ call: Request.Call) -> UInt64? {
        guard slots[index].isRunning && !slots[index].isHung || slots[index].home == nil else { return nil }
        let number = slots[index].calls.send(call)
        flush(index)
        return number
    }

    /// Signs in as the library does: under a strict policy an app with data of another session sends no request.
    private func signIn(_ index: Int, _ person: Int, _ isRight: Bool, _ patience: Int) {
        if oracle.policy.organisation != nil {
            return signInAtPrompt(Setting.people[person], goesOn: isRight, patience: patience)
        }
        guard let process = slots[index].process, process.isStrict != nil, let home = slots[index].home else { return }
        guard process.isStrict == false || homes[home].record.mayHoldData.isEmpty else { return }
        let credentials = SignInRequest(
            username: Setting.people[person],
            password: Secret(isRight ? Setting.rightPassword : Setting.wrongPassword)
        )
        let request = Request.Call.signIn(
            credentials,
            scopes: ["s"],
            patience: .seconds(patience),
            label: "label \(index)"
        )
        if let number = call(index, request) { slots[index].process?.tokens[number] = process.heard }
    }

    private func session(of index: Int) -> (SessionRecord.Session, AppProcess)? {
        guard let process = slots[index].process, let home = slots[index].home,
            let session = homes[home].record.mayHoldData.last
        else { return nil }
        return (session, process)
    }

    private func signOut(_ index: Int) {
        guard let (session, _) = session(of: index) else { return }
        call(index, .signOut(identifier: session.account.identifier, session: session.epoch))
    }

    private func token(_ index: Int, _ refresh: Bool) {
        guard let (session, process) = session(of: index), let home = slots[index].home,
            let isStrict = process.isStrict,
            !isStrict || homes[home].record.mayHoldData.count == 1
        else { return }
        let request = Request.Call.acquireToken(
            identifier: session.account.identifier,
            scopes: ["s"],
            refresh: refresh,
            session: session.epoch
        )
        if let number = call(index, request) { slots[index].process?.tokens[number] = process.heard }
    }

    private func work(_ index: Int) {
        guard let process = slots[index].process, !slots[index].isHung, let home = slots[index].home,
            let session = process.shown
        else { return }
        if !homes[home].record.mayHoldData.contains(where: { $0.epoch == session }), !sharesHome(index) {
            oracle.fail("data was stored without a record", "home \(home), session \(session)")
        }
        homes[home].data[random.below(2)].insert(session)
        call(index, .activity)
    }

    /// Whether another slot has the same app and user. A process there may have cleaned up, and this process may not
    /// know of it yet.
    private func sharesHome(_ index: Int) -> Bool {
        slots.indices.contains { $0 != index && slots[$0].home == slots[index].home }
    }

    /// Repeats the app's last call that the broker has not read yet.
    private func sendAgain(_ index: Int) {
        for case .request(let request) in slots[index].toBroker.reversed() {
            call(index, request.call)
            return
        }
    }

    // MARK: A hostile program

    private func strangerDoes(_ deed: Action.Stranger) {
        let index = Setting.hostile
        let session = max(1, disk.device.epoch) - UInt64(random.below(2))
        let person = Setting.people[random.below(2)]
        func signIn(_ name: String, _ password: String) -> Request.Call {
            let credentials = SignInRequest(username: name, password: Secret(password))
            return .signIn(credentials, scopes: ["s"], patience: .zero, label: nil)
        }
        slots[index].toApp = []
        switch deed {
        case .account: stranger(.currentAccount, random.chance(50) ? "org.example.evil" : nil)
        case .signsIn: stranger(signIn(Setting.people[2], Setting.rightPassword), "org.example.evil")
        case .guesses: for _ in 0..<7 { stranger(signIn(person, Setting.wrongPassword), "org.example.evil") }
        case .signsOut:
            stranger(.signOut(identifier: Setting.account(person).identifier, session: nil), "org.example.mail")
        case .signsAnyoneOut: stranger(.signOutAnyone(identifier: nil, reason: "because"), nil)
        case .reports:
            for name in ["org.example.mail", "org.example.notes", "org.example.evil"] {
                stranger(.report(.finished, session: session, detail: "line\nbreak"), name)
            }
        case .waives: stranger(.waive(app: "org.example.mail", user: nil, session: nil, reason: "because"), nil)
        case .enforces:
            stranger(.overdue(patience: .zero), random.chance(50) ? "org.example.mail" : nil)
            // With other users on the bus, only the enforcement unit may enforce and only the identity service may
            // report events. Other programs of an administrator may not.
            if hasManyUsers {
                call(Self.administrator, .overdue(patience: .zero))
                call(Self.administrator, .providerEvents([ProviderEvent(.networkUp, issuer: Setting.issuer)]))
            }
            for home in Setting.homes {
                let (app, user) = (home.app, home.user)
                stranger(.enforced(app: app, user: user, sessions: [session], detail: nil, problem: nil), nil)
            }
        case .claimsAnother:
            stranger(.currentAccount, "org.example.mail")
            stranger(
                .acquireToken(identifier: Setting.account(person).identifier, scopes: [], refresh: true, session: nil),
                "org.example.notes"
            )
        case .floods: for _ in 0..<150 { stranger(.report(.begun, session: 1, detail: "x"), "org.example.mail") }
        case .leaves:
            slots[index].toBroker.append(.left(slots[index].connection))
            oracle.left(slots[index].connection)
            connect(index)
        }
    }

    private func stranger(_ call: Request.Call, _ name: String?) { send(Setting.hostile, call, claiming: name) }
}
