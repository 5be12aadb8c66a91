import Basics
import CQRCode

extension DeviceCode {
    /// The lines for a terminal. Makes the provider's code and addresses printable, so that they cannot move the
    /// cursor.
    ///
    /// - Parameter withPicture: whether there is room for a QR code.
    func lines(withPicture: Bool, _ texts: PromptTexts = .english) -> [String] {
        let picture = withPicture ? QRCode(self)?.lines ?? [] : []
        return [
            texts[.terminalOpen],
            "    \(address.printable(2048))",
            texts[.terminalHost, ["host": host.printable(255)]],
            "    \(code.printable(64))",
        ] + picture + [texts[.warning], texts[.terminalWaiting]]
    }
}

/// A QR code: squares that are dark or light.
package struct QRCode: Sendable, Hashable {
    /// The rows from top to bottom, each from left to right; `true` is dark.
    let rows: [[Bool]]
    /// The light margin that readers need, in squares.
    private static let margin = 4

    /// - Returns: `nil` if the text is too long for a QR code or memory is exhausted.
    package init?(_ text: String) {
        // Medium error correction: about 15 % may be unreadable, for instance by a reflection on the screen.
        guard let code = QRcode_encodeString8bit(text, 0, QR_ECLEVEL_M) else { return nil }
        defer { QRcode_free(code) }
        let width = Int(code.pointee.width)
        guard let data = code.pointee.data, width > 0 else { return nil }
        // The lowest bit of each byte is the colour.
        rows = (0..<width).map { row in (0..<width).map { data[row * width + $0] & 1 == 1 } }
    }

    /// Encodes the address that includes the code, if there is one.
    package init?(_ code: DeviceCode) { self.init(code.completeAddress ?? code.address) }

    private func isDark(_ row: Int, _ column: Int) -> Bool {
        rows.indices.contains(row) && rows.indices.contains(column) && rows[row][column]
    }

    /// Lines for a terminal, with two rows in each. Sets both colours, because readers need dark on light whatever the
    /// terminal's colours are.
    package var lines: [String] {
        let whole = -Self.margin..<(rows.count + Self.margin)
        return stride(from: whole.lowerBound, to: whole.upperBound, by: 2).map { row in
            let squares = whole.map { column in
                switch (isDark(row, column), isDark(row + 1, column)) {
                case (true, true): "█"
                case (true, false): "▀"
                case (false, true): "▄"
                case (false, false): " "
                }
            }
            return "\u{1B}[38;5;16;48;5;231m\(squares.joined())\u{1B}[0m"
        }
    }

    func svg(_ texts: PromptTexts) -> String {
        let width = rows.count + 2 * Self.margin
        let path = rows.indices.map { row in
            rows.indices.filter { rows[row][$0] }
                .map { "M\($0 + Self.margin) \(row + Self.margin)h1v1h-1z" }
                .joined()
        }
        return """
            <svg viewBox="0 0 \(width) \(width)" role="img" aria-label="\(texts[.picture].markup)" \
            shape-rendering="crispEdges"><path d="\(path.joined())"/></svg>
            """
    }
}
