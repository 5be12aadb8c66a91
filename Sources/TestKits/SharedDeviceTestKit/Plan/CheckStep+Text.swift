import Basics
@_spi(Extensions) import SharedDevice

extension CheckStep {
    func text(_ names: AppNames) -> String {
        switch self {
        case .signIn(let user): "\(user.printable) signs in"
        case .signOut: "sign-out"
        case .waitUntilRunning: "wait until the apps run"
        case .send(let app, let line): "tell \(names[app]) “\(line.printable)”"
        case .waitForLine(let app, let text, _): "wait until \(names[app]) writes “\(text.printable)”"
        case .waitForMarker(let app, let marker, _):
            "wait until “\(marker.printable)” is in the data of \(names[app])"
        case .pause(let time): "a pause of \(Text.milliseconds(time))"
        case .slowCleanup(let app, let time):
            "stop \(names[app]) for \(Text.milliseconds(time)) as soon as it is told of the next sign-out"
        case .start(let app): "start \(names[app])"
        case .stop(let app): "stop \(names[app]) (SIGSTOP)"
        case .resume(let app): "let \(names[app]) go on (SIGCONT)"
        case .kill(let app): "kill \(names[app]) (SIGKILL)"
        case .killBroker: "kill the broker (SIGKILL)"
        case .startBroker: "start the broker"
        case .restartBus: "restart the bus"
        case .spoofBroadcast: "post a broadcast that is not the broker's"
        case .expect(let expectation): expectation.text(names)
        }
    }
}

extension CheckExpectation {
    fileprivate func text(_ names: AppNames) -> String {
        let whose = apps.map { $0.map { names[$0] }.joined(separator: ", ") } ?? "every app"
        return "expect of \(whose): " + parts.joined(separator: "; ")
    }

    var parts: [String] {
        present.map(Expected.present)
            + [heardWithin.map(Expected.heard), cleanedWithin.map(Expected.cleaned)].compactMap(\.self)
            + absent.map(Expected.absent)
    }
}

enum Expected {
    static func present(_ marker: String) -> String { "“\(marker)” is in its data" }
    static func absent(_ marker: String) -> String { "nothing of “\(marker)” is left in its data" }
    static func heard(_ limit: Double) -> String { "hears of the sign-out within \(Text.milliseconds(limit))" }
    static func cleaned(_ limit: Double) -> String { "is clean within \(Text.milliseconds(limit))" }
}
