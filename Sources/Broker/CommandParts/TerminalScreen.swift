import Basics
import FoundationEssentials
import Glibc

/// Takes over the whole screen of a terminal, and restores it afterwards. Uses ECMA-48, and three modes that every
/// current terminal knows: the alternate screen, the cursor and the wrap of lines.
public struct TerminalScreen: Sendable {
    public struct Size: Equatable, Sendable {
        public let columns: Int
        public let rows: Int
    }

    private let attributes: termios?
    private let isColoured = Terminal.isColoured
    private var shown: [String] = []
    private var size: Size?

    public var hasKeys: Bool { attributes != nil }

    /// - Returns: `nil` if standard output is not a terminal that shows a cursor.
    public init?() {
        guard TerminalOutput.showsCursor(STDOUT_FILENO) else { return nil }
        var attributes = termios()
        self.attributes = tcgetattr(STDIN_FILENO, &attributes) == 0 ? attributes : nil
    }

    /// Takes over the screen. ``leave()`` restores its content.
    public mutating func enter() {
        (shown, size) = ([], nil)
        if var silent = attributes {
            // Ctrl-S would stop the program in the middle of a write, where it does not notice signals.
            silent.c_iflag &= ~tcflag_t(IXON)
            silent.c_lflag &= ~tcflag_t(ICANON | ECHO)
            tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent)
        }
        // The alternate screen, no cursor, no wrap at the end of a line.
        _ = writeAll("\u{1B}[?1049h\u{1B}[?25l\u{1B}[?7l", to: STDOUT_FILENO)
    }

    public func leave() {
        _ = writeAll("\u{1B}[?7h\u{1B}[?25h\u{1B}[?1049l", to: STDOUT_FILENO)
        guard var before = attributes else { return }
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &before)
    }

    /// The current size; 80 by 24 if the terminal does not know it.
    public static func currentSize() -> Size {
        var window = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &window) == 0, window.ws_col > 0, window.ws_row > 0 else {
            return Size(columns: 80, rows: 24)
        }
        return Size(columns: Int(window.ws_col), rows: Int(window.ws_row))
    }

    /// Writes the lines that differ from those on the screen. Throws `POSIXError` if the terminal is gone.
    public mutating func draw(_ lines: [ScreenLine], size: Size) throws {
        var output = ""
        if size != self.size {
            output = "\u{1B}[2J"
            (shown, self.size) = ([], size)
        }
        let texts = lines.map { $0.text(isColoured: isColoured) }
        for row in 0..<max(texts.count, shown.count) {
            let text = row < texts.count ? texts[row] : ""
            guard row >= shown.count || text != shown[row] else { continue }
            // Erase before writing: after a full line the cursor stays on the last character.
            output += "\u{1B}[\(row + 1);1H\u{1B}[K\(text)"
        }
        shown = texts
        let code = writeAll(output, to: STDOUT_FILENO)
        if code != 0 { throw POSIXError(POSIXErrorCode(rawValue: code) ?? .EIO) }
    }
}
