/// A picture for the person at the device: lines of text, and keys for fingers.
package struct ScreenPicture: Sendable, Hashable {
    package enum Kind: Sendable, Hashable {
        case nothing, panel, cover
    }

    package enum Style: Sendable, Hashable {
        case title, text, hint, problem, field, button
    }

    package struct Line: Sendable, Hashable {
        package let style: Style
        package let text: String
        /// The characters of a field, which are not shown.
        package let dots: Int

        init(_ style: Style, _ text: String, dots: Int = 0) { (self.style, self.text, self.dots) = (style, text, dots) }
    }

    package var kind = Kind.nothing
    package var lines: [Line] = []
    package var hasKeys = false

    package init() {}

    mutating func add(_ style: Style, _ text: String) { lines.append(Line(style, text)) }
}

/// The places of a picture's parts, for a screen of any size.
package struct ScreenLayout: Sendable, Hashable {
    package struct Frame: Sendable, Hashable {
        package let x, y, width, height: Double
    }

    package struct Key: Sendable, Hashable {
        package let label: String
        package let key: ScreenState.Key
        package let frame: Frame
    }

    /// The place of the lines.
    package let text: Frame
    package let keys: [Key]
    /// The size of ordinary text.
    package let size: Double

    package init(_ picture: ScreenPicture, width: Double, height: Double) {
        let margin = min(width, height) / 20
        size = picture.kind == .panel ? 20 : min(max(min(width, height) / 24, 15), 40)
        guard picture.hasKeys else {
            text = Frame(x: margin, y: margin, width: width - 2 * margin, height: height - 2 * margin)
            keys = []
            return
        }
        // The keys are to the right of the text, or below it.
        let isWide = width >= height
        let textWidth = isWide ? width * 0.55 : width
        let textHeight = isWide ? height : height * 0.5
        text = Frame(x: margin, y: margin, width: textWidth - 2 * margin, height: textHeight - 2 * margin)
        let left = isWide ? textWidth : 0
        let top = isWide ? 0 : textHeight
        let cell = min((width - left - 2 * margin) / 3, (height - top - 2 * margin) / 4, 130)
        let x = left + (width - left - 3 * cell) / 2
        let y = top + (height - top - 4 * cell) / 2
        let gap = cell / 12
        let labels = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "←", "0", "OK"]
        keys = labels.enumerated().map { index, label in
            let key: ScreenState.Key = label == "←" ? .erase : label == "OK" ? .enter : .text(label)
            let frame = Frame(
                x: x + Double(index % 3) * cell + gap,
                y: y + Double(index / 3) * cell + gap,
                width: cell - 2 * gap,
                height: cell - 2 * gap
            )
            return Key(label: label, key: key, frame: frame)
        }
    }

    /// The key at a place.
    package func key(x: Double, y: Double) -> ScreenState.Key? {
        keys.first {
            (0..<$0.frame.width).contains(x - $0.frame.x) && (0..<$0.frame.height).contains(y - $0.frame.y)
        }?.key
    }
}
