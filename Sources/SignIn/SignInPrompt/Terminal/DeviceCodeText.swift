import StrictJSON

/// What a person reads who signs in on another device.
enum DeviceCodeText {
    /// Against those who have a code of their own confirmed by somebody else.
    static let warning = "Never enter a code that somebody reads out to you."

    /// For a terminal. The code and the addresses come from the provider; nothing in them moves the cursor.
    ///
    /// - Parameter withPicture: whether there is room for a QR code.
    static func lines(_ code: DeviceCode, withPicture: Bool) -> [String] {
        let picture = withPicture ? QRCode(code)?.lines ?? [] : []
        return [
            "To sign in, open this address on another device:",
            "    \(code.address.printable(2048))",
            "It is a page of \(code.host.printable(255)). Type in this code there:",
            "    \(code.code.printable(64))",
        ] + picture + [warning, "Waiting until you have finished there; Ctrl-C cancels."]
    }
}
