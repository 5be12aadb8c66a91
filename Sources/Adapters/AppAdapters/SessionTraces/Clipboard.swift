import DBus
import FoundationEssentials

/// The two selections of a display, and KDE's history of them.
struct Clipboard: Sendable {
    private enum Display {
        case none
        case wayland
        case x11(tool: String)
    }

    private enum Selection: String, CaseIterable {
        case clipboard, primary
    }

    let environment: [String: String]
    let tools: SessionTools

    func look() async throws(AdapterFailure) -> TraceFinding {
        let display = try display()
        if case .none = display {
            return .absent("the session has no display (neither WAYLAND_DISPLAY nor DISPLAY is set)")
        }
        var full: [String] = []
        for selection in Selection.allCases where try await isFull(selection, display) {
            full.append(selection.rawValue)
        }
        return full.isEmpty ? .nothing : .traces(full.joined(separator: " and "))
    }

    func clear() async throws(AdapterFailure) -> TraceFinding {
        // Must precede the selections: Klipper replaces an empty selection with the last entry of its history.
        try await SessionService.klipper.call("/klipper", "org.kde.klipper.klipper", "clearClipboardHistory")
        let before = try await look()
        let display = try display()
        for selection in Selection.allCases { try await clear(selection, display) }
        guard case .traces(let left) = try await look() else { return before }
        let remedy = "See which program watches the clipboard, and end it with the session"
        throw AdapterFailure("empty the clipboard: something is in it again (\(left))", remedy: remedy)
    }

    /// - Throws: ``AdapterFailure`` if there is a display but no tool for its clipboard.
    private func display() throws(AdapterFailure) -> Display {
        let names = ["WAYLAND_DISPLAY", "DISPLAY"].filter { environment[$0]?.isEmpty == false }
        guard let name = names.first else { return .none }
        if name == "WAYLAND_DISPLAY", tools.has("wl-copy"), tools.has("wl-paste") { return .wayland }
        if name == "DISPLAY", let tool = ["xclip", "xsel"].first(where: tools.has) { return .x11(tool: tool) }
        let package = name == "DISPLAY" ? "xclip" : "wl-clipboard"
        let remedy = "Install \(package), or leave the step out (--without clipboard)"
        throw AdapterFailure("reach the clipboard of \(name): no program for it is installed", remedy: remedy)
    }

    private func isFull(_ selection: Selection, _ display: Display) async throws(AdapterFailure) -> Bool {
        let (words, listing): ([String], [String])
        switch display {
        case .none: return false
        case .wayland:
            words = ["wl-paste", "--list-types"] + (selection == .primary ? ["--primary"] : [])
            listing = words
        case .x11("xclip"):
            words = ["xclip", "-o", "-selection", selection.rawValue]
            listing = words + ["-t", "TARGETS"]
        case .x11(let tool):
            words = [tool, "--output", "--\(selection.rawValue)"]
            listing = words
        }
        let (status, text) = try await tools.output(of: words[0], Array(words.dropFirst()))
        // Status 1 means an empty selection or a lost display. With status 0 the text is the user's.
        if status != 0, ["open display", "connect to a Wayland"].contains(where: { text.contains($0) }) {
            let remedy = "Run it in the session, with the variables of its display"
            throw AdapterFailure("read the clipboard: \(text.firstLine ?? "")", remedy: remedy)
        }
        if status == 0, !text.isEmpty { return true }
        guard listing != words else { return false }
        // A picture has no text, so its targets tell.
        let targets = try await tools.output(of: listing[0], Array(listing.dropFirst()))
        return targets.status == 0 && targets.text.split(separator: "\n").contains { $0.contains("/") }
    }

    private func clear(_ selection: Selection, _ display: Display) async throws(AdapterFailure) {
        switch display {
        case .none: return
        case .wayland:
            let primary = selection == .primary ? ["--primary"] : []
            let (status, text) = try await tools.output(of: "wl-copy", primary + ["--clear"])
            // Some compositors have no primary selection.
            guard status != 0, !(selection == .primary && text.contains("primary selection")) else { return }
            let failure = "empty the clipboard: \(text.firstLine ?? "wl-copy ended with status \(status)")"
            throw AdapterFailure(failure, remedy: "Try wl-copy --clear in the session")
        // xclip keeps running as the owner of an empty selection until a program copies something.
        case .x11("xclip"): try await tools.run("xclip", ["-selection", selection.rawValue, "-i", "/dev/null"])
        case .x11(let tool): try await tools.run(tool, ["--clear", "--\(selection.rawValue)"])
        }
    }
}
