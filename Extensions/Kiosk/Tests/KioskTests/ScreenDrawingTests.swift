import CommandParts
import Foundation
@_spi(Extensions) import SharedDevice
import Testing

@testable import KioskScreen

@Suite("The pictures of the screen")
struct ScreenDrawingTests {
    private let now = ContinuousClock.now

    /// The pictures with the most text.
    private func pictures(_ language: Language) -> [ScreenPicture] {
        let texts = Texts(language)
        return [ScreenContent.warning, .lock, .signIn, .cleanup].flatMap { show in
            [SessionEnd.Reason.inactivity, .longestSession].map { reason in
                var state = ScreenState(asksForBadge: true)
                let answer = ScreenAnswer(
                    revision: 1,
                    show: show,
                    end: SessionEnd(at: Date() + 3000, reason: reason, isSoon: true),
                    username: "ada",
                    displayName: "Augusta Ada King, Countess of Lovelace, 第一位程式設計師",
                    signInMethods: [.badge, .password]
                )
                state.take(answer, time: Date(), now: now)
                if reason == .inactivity {
                    _ = state.press(.text("1234"), at: nil, now: now)
                    state.finish(SharedDeviceError(.userNotAllowed, attempted: "sign in", message: ""), now: now)
                }
                return state.picture(texts, now: now)
            }
        }
    }

    @Test(
        "all text fits on small and large screens, in each language",
        arguments: Language.allCases,
        [(1920, 1080, 1), (800, 480, 1), (480, 800, 1), (1280, 800, 2)]
    )
    func fits(_ language: Language, _ size: (width: Int, height: Int, scale: Int)) {
        for picture in pictures(language) {
            let height = picture.kind == .panel ? 120 * size.scale : size.height
            var pixels = [UInt8](repeating: 0, count: size.width * height * 4)
            let fits = ScreenDrawing.draw(
                picture,
                into: &pixels,
                width: size.width,
                height: height,
                stride: size.width * 4,
                scale: size.scale
            )
            #expect(fits, "\(language), \(size): \(picture.lines.map(\.text))")
            let values = Set(stride(from: 0, to: pixels.count, by: 101).map { pixels[$0] })
            #expect(values.count > 4, "nothing is drawn")
        }
    }

    @Test("each key of the screen is on it, and is hit by a finger", arguments: [(1920.0, 1080.0), (480.0, 800.0)])
    func keys(_ width: Double, _ height: Double) {
        var picture = ScreenPicture()
        picture.hasKeys = true
        let layout = ScreenLayout(picture, width: width, height: height)
        #expect(layout.keys.count == 12)
        for key in layout.keys {
            let frame = key.frame
            #expect(frame.width >= 40 && frame.x >= 0 && frame.x + frame.width <= width, "\(key)")
            #expect(frame.y >= 0 && frame.y + frame.height <= height, "\(key)")
            #expect(layout.key(x: frame.x + 1, y: frame.y + 1) == key.key)
        }
        #expect(layout.key(x: 0, y: 0) == nil)
    }
}
