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
    /// How long the sign-in makes room for the person's app.
    static let roomForApp = Duration.seconds(60)

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
    /// While the broker checks a sign-in: the content on which the person entered it.
    private var cover: ScreenContent?
    /// Whether the broker is being told that the person stays.
    private var isStaying = false
    private var problem: SharedDeviceError?
    private var problemSince = ContinuousClock.now
    /// Until when the person has hidden the content.
    private var hiddenUntil: ContinuousClock.Instant?

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
        let isOther = order.show != self.order.show || order.username != self.order.username
        if isOther || order.end?.reason != self.order.end?.reason { hiddenUntil = nil }
        if isOther {
            forget()
            // A refusal may come just after the end of the session that it is about.
            if !isBusy, order.show != .signIn, order.show != .cleanup { problem = nil }
        }
        self.order = order
    }

    /// Notes that the broker does not respond. A cover stays, because the session may still be locked.
    package mutating func lose() {
        isReachable = false
        if order.show == .warning { order.show = .nothing }
    }

    /// Ends the wait for the broker's response to a sign-in, and shows its refusal.
    package mutating func finish(_ refusal: SharedDeviceError?, now: ContinuousClock.Instant) {
        cover = nil
        problem = refusal
        problemSince = now
    }

    /// Ends the wait for the broker's response to ``ScreenRequest/stay``. The warning says whether it was refused.
    package mutating func finishStay() { isStaying = false }

    // MARK: The person

    /// Handles a key, and returns what the person wants of the broker.
    ///
    /// - Parameter time: When a key was pressed, by the compositor's clock; `nil` for a touch.
    package mutating func press(_ key: Key, at time: UInt32?, now: ContinuousClock.Instant) -> ScreenRequest? {
        tick(now)
        lastKey = now
        switch shown {
        case .nothing, .cleanup: return nil
        case .warning:
            // A warning in a window covers the person's work.
            guard canStay else {
                hiddenUntil = now + .seconds(86400)
                return nil
            }
            guard !isStaying else { return nil }
            isStaying = true
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
        case .escape where canHide: hiddenUntil = now + Self.roomForApp
        case .erase, .escape: forget()
        case .enter: return enter(at: time)
        }
        return nil
    }

    private mutating func enter(at time: UInt32?) -> ScreenRequest? {
        guard !entry.isEmpty else { return nil }
        let (text, isBadge) = entry.take(at: time)
        problem = nil
        // Where the broker names no person, a person may also type the number.
        if isBadge && takesBadges || badge == nil && person == nil {
            badge = text
            return nil
        }
        cover = shown
        if let badge {
            self.badge = nil
            return .signIn(.badge(number: badge, pin: text))
        }
        let isPIN = (4...12).contains(text.utf8.count) && text.utf8.allSatisfy { (0x30...0x39).contains($0) }
        let username = person ?? ""
        return .signIn(isPIN ? .pin(username: username, pin: text) : .password(username: username, password: text))
    }

    /// Forgets the text and the refusal of a person who has left.
    package mutating func tick(_ now: ContinuousClock.Instant) {
        if now - lastKey > Self.patience { forget() }
        if now - problemSince > Self.patience { problem = nil }
        if let hiddenUntil, now >= hiddenUntil { self.hiddenUntil = nil }
    }

    /// Whether time alone changes what is shown.
    package var isTimed: Bool { hiddenUntil != nil || shown != .nothing }

    private mutating func forget() {
        entry.clear()
        badge = nil
    }

    // MARK: The screen

    /// What is shown; the sign-in only if it is wanted.
    package var shown: ScreenContent {
        let isHidden = hiddenUntil != nil || order.show == .signIn && !(asksForBadge && takesBadges)
        let show = isHidden ? .nothing : order.show
        // While the broker checks what was entered, the apps may still show the data of the person before.
        return show == .nothing || show == .warning ? cover ?? show : show
    }

    private var isBusy: Bool { cover != nil }
    /// The person who may come back.
    private var person: String? { order.show == .lock ? order.username : nil }
    /// Whether a person without a badge may go on to the app.
    private var canHide: Bool { shown == .signIn && entry.isEmpty && badge == nil }
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
        case .cleanup: break
        case .lock where badge == nil: if person != nil { picture.add(.title, name) }
        case .lock, .signIn: picture.add(.title, texts[badge == nil ? "signIn" : "screen.badge.read"])
        }
        picture.kind = .cover
        let isPIN = !isBusy && (badge != nil || person != nil)
        picture.hasKeys = isPIN
        if isBusy {
            picture.add(.text, texts["screen.busy"])
        } else if shown == .cleanup {
            picture.add(.text, texts["screen.cleanup"])
        } else {
            let sentence = badge != nil ? "screen.pin" : person != nil ? "screen.return" : "screen.badge"
            picture.add(.text, texts[takesBadges || isPIN ? sentence : "screen.busy"])
            if isPIN || !entry.isEmpty { picture.lines.append(.init(.field, "", dots: min(entry.count, 16))) }
        }
        if let problem, isReachable { picture.add(.problem, words(problem, texts)) }
        if !isReachable { picture.add(.problem, texts["screen.unreachable"]) }
        if canHide, !isBusy { picture.add(.hint, texts["screen.escape"]) }
        guard person != nil, badge == nil else { return picture }
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
