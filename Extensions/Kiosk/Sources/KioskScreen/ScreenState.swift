import Basics
package import CommandParts
package import FoundationEssentials
@_spi(Extensions) package import SharedDevice

/// What the person at the device asks of the broker.
package enum ScreenRequest: Sendable {
    case stay
    case signIn(PersonalCredentials)
}

/// What is on the screen, and what the keys mean. Pure.
package struct ScreenState: Sendable, Hashable {
    package enum Key: Sendable, Hashable {
        case text(String)
        case enter, erase, escape
    }

    /// How long entered text stays without a further key.
    static let patience = Duration.seconds(30)

    /// Whether to ask for a badge while no person is signed in.
    package let asksForBadge: Bool
    /// Whether the broker has said what to show.
    package private(set) var hasAnswer = false
    private var order = ScreenAnswer(revision: 0, show: .nothing)
    /// When the session ends or is locked, by a clock that is never set.
    private var end: ContinuousClock.Instant?
    private var isReachable = true
    private var entry = ScreenEntry()
    /// The number of the badge whose PIN is asked for.
    private var badge: String?
    private var lastKey = ContinuousClock.now
    /// Whether the broker checks what was entered.
    private var isBusy = false
    private var problem: SharedDeviceError?

    package init(asksForBadge: Bool) { self.asksForBadge = asksForBadge }

    // MARK: The broker

    /// Adopts what the broker wants to be on the screen.
    ///
    /// - Parameters:
    ///   - time: The device's clock.
    ///   - now: The same moment.
    package mutating func take(_ order: ScreenAnswer, time: Date, now: ContinuousClock.Instant) {
        hasAnswer = true
        isReachable = true
        // A day is more than any countdown.
        end = order.end.map { now + .seconds(min(max($0.at.timeIntervalSince(time), 0), 86400)) }
        if order.show != self.order.show || order.username != self.order.username {
            forget()
            // A refusal may come just after the end of the session that it is about.
            if !isBusy, order.show != .signIn { problem = nil }
        }
        self.order = order
    }

    /// Notes that the broker does not respond. A cover stays, because the session may still be locked.
    package mutating func lose() {
        isReachable = false
        if order.show == .warning { order.show = .nothing }
    }

    /// Ends the wait for the broker's response to a request, and shows its refusal.
    package mutating func finish(_ refusal: SharedDeviceError?) {
        isBusy = false
        problem = refusal
    }

    // MARK: The person

    /// Handles a key, and returns what the person wants of the broker.
    ///
    /// - Parameter time: When a key was pressed, by the compositor's clock; `nil` for a touch.
    package mutating func press(_ key: Key, at time: UInt32?, now: ContinuousClock.Instant) -> ScreenRequest? {
        tick(now)
        lastKey = now
        switch shown {
        case .nothing: return nil
        case .warning:
            guard canStay, !isBusy else { return nil }
            isBusy = true
            return .stay
        case .lock, .signIn: break
        }
        guard !isBusy else { return nil }
        if key != .enter { problem = nil }
        switch key {
        case .text(let text):
            // A badge reader types no control characters, and a password has none.
            if text.unicodeScalars.allSatisfy(\.isPrintable) { entry.append(text, at: time) }
        case .erase where !entry.isEmpty: entry.erase()
        case .erase, .escape: forget()
        case .enter: return enter(at: time)
        }
        return nil
    }

    private mutating func enter(at time: UInt32?) -> ScreenRequest? {
        guard !entry.isEmpty else { return nil }
        let (text, isBadge) = entry.take(at: time)
        problem = nil
        // On the sign-in screen, a person may also type the number.
        if isBadge && takesBadges || shown == .signIn && badge == nil {
            badge = text
            return nil
        }
        isBusy = true
        if let badge {
            self.badge = nil
            return .signIn(.badge(number: badge, pin: text))
        }
        let isPIN = (4...12).contains(text.utf8.count) && text.utf8.allSatisfy { (0x30...0x39).contains($0) }
        let username = order.username ?? ""
        return .signIn(
            isPIN ? .pin(username: username, pin: text) : .password(username: username, password: text)
        )
    }

    /// Forgets text whose person has left.
    package mutating func tick(_ now: ContinuousClock.Instant) {
        if now - lastKey > Self.patience { forget() }
    }

    private mutating func forget() {
        entry.clear()
        badge = nil
    }

    // MARK: The screen

    /// What is shown; the sign-in only if it is wanted.
    package var shown: ScreenContent {
        order.show == .signIn && !(asksForBadge && takesBadges) ? .nothing : order.show
    }

    private var canStay: Bool { order.end?.reason == .inactivity }
    private var takesBadges: Bool { order.signInMethods.contains(.badge) }
    /// The person's name, of a length that fits.
    private var name: String { (order.displayName ?? order.username ?? "").printable(60) }

    package func picture(_ texts: Texts, now: ContinuousClock.Instant) -> ScreenPicture {
        var picture = ScreenPicture()
        switch shown {
        case .nothing: return picture
        case .warning:
            picture.kind = .panel
            let reason = order.end?.reason ?? .other
            picture.add(.text, texts["screen.ending.\(reason.rawValue)", ["time": countdown(now)]])
            if canStay { picture.add(.button, texts["ending.stay"]) }
            return picture
        case .lock: picture.add(.title, badge == nil ? name : texts["screen.badge.read"])
        case .signIn: picture.add(.title, texts[badge == nil ? "signIn" : "screen.badge.read"])
        }
        picture.kind = .cover
        let isPIN = badge != nil || shown == .lock
        picture.hasKeys = isPIN && !isBusy
        if isBusy {
            picture.add(.text, texts["screen.busy"])
        } else {
            let sentence = badge != nil ? "screen.pin" : shown == .lock ? "screen.return" : "screen.badge"
            picture.add(.text, texts[sentence])
            if isPIN || !entry.isEmpty { picture.lines.append(.init(.field, "", dots: min(entry.count, 16))) }
        }
        if let problem, isReachable { picture.add(.problem, words(problem, texts)) }
        if !isReachable { picture.add(.problem, texts["screen.unreachable"]) }
        guard shown == .lock, badge == nil else { return picture }
        if end != nil { picture.add(.hint, texts["screen.ending.lock", ["time": countdown(now)]]) }
        if takesBadges { picture.add(.hint, texts["screen.other", ["name": name]]) }
        return picture
    }

    private func words(_ problem: SharedDeviceError, _ texts: Texts) -> String {
        if problem.code == .authenticationFailed { return texts["screen.wrong"] }
        let key = "error.\(problem.code)"
        let sentence = texts[key]
        return sentence != key ? sentence : texts["error.other", ["message": problem.message.printable(200)]]
    }

    /// The minutes and seconds until the end.
    private func countdown(_ now: ContinuousClock.Instant) -> String {
        let seconds = Int(end.map { max(.zero, $0 - now) / .seconds(1) }?.rounded(.up) ?? 0)
        return "\(seconds / 60):\(seconds % 60 < 10 ? "0" : "")\(seconds % 60)"
    }
}
