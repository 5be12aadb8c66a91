import CScreen
import Testing

@Suite("A window that covers the screen")
struct ScreenWindowTests {
    // Of xdg_toplevel.
    private static let (maximized, fullscreen, activated): (UInt32, UInt32, UInt32) = (1, 2, 4)

    private func window(_ states: [[UInt32]]) -> CScreen_Window {
        states.reduce(into: CScreen_Window()) { CScreen_adapt(&$0, $1, $1.count) }
    }

    @Test(
        "a window with the keyboard counts if it fills the output",
        arguments: [([fullscreen, activated], true), ([maximized, activated], true), ([activated], false)]
    )
    func counts(_ states: [UInt32], _ counts: Bool) {
        let window = window([[], states])
        #expect(window.isActive && window.isCover == counts && !window.hasFailed)
    }

    @Test(
        "a window that was not above all others for a moment has failed for good",
        arguments: [[fullscreen], [activated], []]
    )
    func fails(_ between: [UInt32]) {
        let full = [Self.fullscreen, Self.activated]
        let window = window([full, between, full])
        #expect(window.isCover && window.hasFailed)
    }
}
