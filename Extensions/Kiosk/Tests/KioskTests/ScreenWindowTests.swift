import CScreen
import Testing

@Suite("A window that covers the screen")
struct ScreenWindowTests {
    // Of xdg_toplevel.
    private static let (maximized, fullscreen, activated): (UInt32, UInt32, UInt32) = (1, 2, 4)

    @Test(
        "a window counts if it has the keyboard and fills the output all the time",
        arguments: [
            ([[], [fullscreen, activated]], true, false), ([[], [maximized, activated]], true, false),
            ([[], [activated]], false, false),
            ([[fullscreen, activated], [fullscreen], [fullscreen, activated]], true, true),
            ([[fullscreen, activated], [activated], [fullscreen, activated]], true, true),
            ([[fullscreen, activated], [], [fullscreen, activated]], true, true),
        ] as [([[UInt32]], Bool, Bool)]
    )
    func counts(_ states: [[UInt32]], isCover: Bool, hasFailed: Bool) {
        let window = states.reduce(into: CScreen_Window()) { CScreen_adapt(&$0, $1, $1.count) }
        #expect(window.isActive && window.isCover == isCover && window.hasFailed == hasFailed)
    }
}
