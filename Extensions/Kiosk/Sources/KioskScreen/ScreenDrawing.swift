import CPangoCairo

/// Draws pictures with Cairo and Pango.
package enum ScreenDrawing {
    private struct Color {
        let red, green, blue: Double

        init(_ hex: Int) {
            (red, green, blue) = (Double(hex >> 16) / 255, Double(hex >> 8 & 255) / 255, Double(hex & 255) / 255)
        }

        static let background = Color(0x1B2430)
        static let raised = Color(0x33415A)
        static let text = Color(0xFFFFFF)
        static let hint = Color(0xC3CCD9)
        static let problem = Color(0xFFB59E)
    }

    /// The smallest factor of text that does not fit otherwise.
    private static let leastFactor = 0.6

    /// Draws into memory of pixels without transparency, of 32 bits each.
    ///
    /// - Returns: whether all text fits.
    @discardableResult package static func draw(
        _ picture: ScreenPicture,
        into pixels: UnsafeMutablePointer<UInt8>,
        width: Int,
        height: Int,
        stride: Int,
        scale: Int
    ) -> Bool {
        let surface = cairo_image_surface_create_for_data(
            pixels,
            CAIRO_FORMAT_RGB24,
            CInt(width),
            CInt(height),
            CInt(stride)
        )
        defer { cairo_surface_destroy(surface) }
        guard let canvas = cairo_create(surface) else { return false }
        defer { cairo_destroy(canvas) }
        cairo_scale(canvas, Double(scale), Double(scale))
        fill(canvas, .background)
        cairo_paint(canvas)
        let layout = ScreenLayout(picture, width: Double(width / scale), height: Double(height / scale))
        for key in layout.keys {
            box(canvas, key.frame)
            fill(canvas, .text)
            let size = key.frame.height * 0.4
            let text = Text(canvas, key.label, size: size, isBold: false, width: key.frame.width)
            text.draw(x: key.frame.x, y: key.frame.y + (key.frame.height - text.height) / 2)
        }
        var factor = 1.0
        var parts = lines(canvas, picture, layout, factor)
        while parts.height > layout.text.height, factor > leastFactor {
            factor -= 0.05
            parts = lines(canvas, picture, layout, factor)
        }
        var y = layout.text.y + max(0, (layout.text.height - parts.height) / 2)
        for (line, text) in zip(picture.lines, parts.texts) {
            draw(line, text, canvas, layout.text, y: y, size: layout.size * factor)
            y += text.height + parts.gap
        }
        return parts.height <= layout.text.height
    }

    private static func lines(
        _ canvas: OpaquePointer,
        _ picture: ScreenPicture,
        _ layout: ScreenLayout,
        _ factor: Double
    ) -> (texts: [Text], gap: Double, height: Double) {
        let size = layout.size * factor
        let gap = size * (picture.kind == .panel ? 0.5 : 0.9)
        // Long lines are hard to read.
        let width = min(layout.text.width, size * 34)
        let texts = picture.lines.map { line in
            let isTitle = line.style == .title
            let dots = Array(repeating: "●", count: line.dots).joined(separator: " ")
            return Text(
                canvas,
                line.style == .field ? dots : line.text,
                size: isTitle ? size * 1.8 : line.style == .hint ? size * 0.85 : size,
                isBold: isTitle || line.style == .button,
                width: width
            )
        }
        let height = texts.reduce(0) { $0 + $1.height } + gap * Double(max(0, texts.count - 1))
        return (texts, gap, height)
    }

    private static func draw(
        _ line: ScreenPicture.Line,
        _ text: Text,
        _ canvas: OpaquePointer,
        _ frame: ScreenLayout.Frame,
        y: Double,
        size: Double
    ) {
        if line.style == .field || line.style == .button {
            let width = min(frame.width, line.style == .field ? size * 18 : text.usedWidth + size * 2)
            let x = frame.x + (frame.width - width) / 2
            box(canvas, .init(x: x, y: y - size * 0.3, width: width, height: text.height + size * 0.6))
        }
        fill(canvas, line.style == .problem ? .problem : line.style == .hint ? .hint : .text)
        text.draw(x: frame.x + (frame.width - text.width) / 2, y: y)
    }

    private static func fill(_ canvas: OpaquePointer, _ color: Color) {
        cairo_set_source_rgb(canvas, color.red, color.green, color.blue)
    }

    private static func box(_ canvas: OpaquePointer, _ frame: ScreenLayout.Frame) {
        fill(canvas, .raised)
        let radius = min(frame.height / 5, 12)
        let (right, bottom) = (frame.x + frame.width - radius, frame.y + frame.height - radius)
        cairo_new_path(canvas)
        cairo_arc(canvas, right, frame.y + radius, radius, -.pi / 2, 0)
        cairo_arc(canvas, right, bottom, radius, 0, .pi / 2)
        cairo_arc(canvas, frame.x + radius, bottom, radius, .pi / 2, .pi)
        cairo_arc(canvas, frame.x + radius, frame.y + radius, radius, .pi, -.pi / 2)
        cairo_close_path(canvas)
        cairo_fill(canvas)
    }

    /// Centered text, wrapped to a width.
    private final class Text {
        let width: Double
        /// The width of the longest line.
        let usedWidth: Double
        let height: Double
        private let canvas: OpaquePointer
        private let layout: OpaquePointer?

        init(_ canvas: OpaquePointer, _ text: String, size: Double, isBold: Bool, width: Double) {
            self.canvas = canvas
            self.width = width
            layout = pango_cairo_create_layout(canvas)
            let font = pango_font_description_from_string("sans-serif")
            pango_font_description_set_absolute_size(font, size * Double(PANGO_SCALE))
            if isBold { pango_font_description_set_weight(font, PANGO_WEIGHT_BOLD) }
            pango_layout_set_font_description(layout, font)
            pango_font_description_free(font)
            pango_layout_set_text(layout, text, -1)
            pango_layout_set_width(layout, CInt(width * Double(PANGO_SCALE)))
            pango_layout_set_wrap(layout, PANGO_WRAP_WORD_CHAR)
            pango_layout_set_alignment(layout, PANGO_ALIGN_CENTER)
            var (pixelWidth, pixelHeight): (CInt, CInt) = (0, 0)
            pango_layout_get_pixel_size(layout, &pixelWidth, &pixelHeight)
            (usedWidth, height) = (Double(pixelWidth), Double(pixelHeight))
        }

        deinit { layout.map { g_object_unref(UnsafeMutableRawPointer($0)) } }

        func draw(x: Double, y: Double) {
            cairo_move_to(canvas, x, y)
            pango_cairo_show_layout(canvas, layout)
        }
    }
}
