import DeviceView
import Glibc
import SharedDeviceTestKit

/// A terminal whose whole screen a program writes on, and which is afterwards as it was.
///
/// By ECMA-48 and four sequences that every terminal of these days knows. Of Swift's libraries for terminals, SwiftTUI 0.1 and TUIkit are frameworks in
/// SwiftUI's manner, with Foundation and a model of views, and the wrappers of curses are not kept any more; this needs neither views nor input beyond
/// a few keys.
struct TerminalScreen {
    struct Size: Equatable {
        let columns: Int
        let rows: Int
    }

    private let attributes: termios?
    private let isColoured = Terminal.isColoured
    private var shown: [String] = []
    private var size: Size?

    /// Whether keys can be read.
    var hasKeys: Bool { attributes != nil }

    /// - Returns: `nil` where standard output is no terminal that shows a cursor.
    init?() {
        guard TerminalOutput.showsCursor(STDOUT_FILENO) else { return nil }
        var attributes = termios()
        self.attributes = tcgetattr(STDIN_FILENO, &attributes) == 0 ? attributes : nil
    }

    /// Takes the screen over. What was on it comes back with ``leave()``.
    mutating func enter() {
        (shown, size) = ([], nil)
        if var silent = attributes {
            // Ctrl-S would stop the program in the middle of a write, where it hears no signal.
            silent.c_iflag &= ~tcflag_t(IXON)
            silent.c_lflag &= ~tcflag_t(ICANON | ECHO)
            tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent)
        }
        // The other screen, no cursor, no wrap at the end of a line.
        try? writeAll("\u{1B}[?1049h\u{1B}[?25l\u{1B}[?7l", to: STDOUT_FILENO)
    }

    /// Leaves the terminal as it was before.
    func leave() {
        try? writeAll("\u{1B}[?7h\u{1B}[?25h\u{1B}[?1049l", to: STDOUT_FILENO)
        guard var before = attributes else { return }
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &before)
    }

    /// The size now; 80 by 24 where the terminal does not know it.
    static func currentSize() -> Size {
        var window = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &window) == 0, window.ws_col > 0, window.ws_row > 0 else {
            return Size(columns: 80, rows: 24)
        }
        return Size(columns: Int(window.ws_col), rows: Int(window.ws_row))
    }

    /// Writes the lines that differ from those on the screen.
    ///
    /// - Throws: `POSIXError` where nobody reads any more.
    mutating func draw(_ lines: [ScreenLine], size: Size) throws {
        var output = ""
        if size != self.size {
            output = "\u{1B}[2J"
            (shown, self.size) = ([], size)
        }
        let texts = lines.map { $0.text(isColoured: isColoured) }
        for row in 0..<max(texts.count, shown.count) {
            let text = row < texts.count ? texts[row] : ""
            guard row >= shown.count || text != shown[row] else { continue }
            // Emptied before it is written: at the end of a full line the cursor stands on the last character.
            output += "\u{1B}[\(row + 1);1H\u{1B}[K\(text)"
        }
        shown = texts
        if !output.isEmpty { try writeAll(output, to: STDOUT_FILENO) }
    }
}
