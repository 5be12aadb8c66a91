import Basics
import CommandParts

/// The pages of a sign-in: plain HTML without scripts that works with keyboard and screen reader.
package struct Page: Sendable, Hashable {
    let html: String

    /// What the form asks for.
    package enum Form: Sendable, Hashable {
        /// A name and a password, or a badge. `isKnown` says that only the password of this name is missing.
        case name(String, isKnown: Bool, takesBadge: Bool)
        /// The PIN of a badge that was read.
        case pin
    }

    /// A form for the person's input. After `timeLeft` the page reloads, to show that the sign-in is over.
    ///
    /// - Parameter notice: the reason why the form is shown again.
    package static func form(
        _ content: Form,
        action: String,
        notice: String?,
        timeLeft: Duration? = nil,
        _ texts: PromptTexts = .english
    ) -> Page {
        let alert = notice.map { #"<p class="notice" role="alert" id="notice">\#($0.markup)</p>"# } ?? ""
        let described = notice == nil ? "" : #" aria-describedby="notice""#
        func form(_ fields: String, _ button: PromptTexts.Key = .signIn) -> String {
            """
            <form method="post" action="\(action.markup)" accept-charset="utf-8">
            \(fields)
            <button type="submit">\(texts[button].markup)</button>
            </form>
            """
        }
        func secret(_ name: String, _ label: PromptTexts.Key, _ longest: Int, _ attributes: String) -> String {
            """
            <label for="\(name)">\(texts[label].markup)</label>
            <input id="\(name)" name="\(name)" type="password" autocomplete="off" maxlength="\(longest)" required\(attributes)>
            """
        }
        let forms: [String]
        switch content {
        case .name(let username, let isKnown, let takesBadge):
            // A reader types into the field that has the focus.
            let name = """
                <label for="username">\(texts[.userName].markup)</label>
                <input id="username" name="username" value="\(username.markup)" autocomplete="off" autocapitalize="none" \
                spellcheck="false" maxlength="256" required\(isKnown || takesBadge ? "" : " autofocus")>

                """
            let password = secret("password", .password, 1024, described + (isKnown ? " autofocus" : ""))
            let badge = secret("badge", .badge, 128, isKnown ? "" : described + " autofocus")
            forms = (takesBadge ? [form(badge, .goOn)] : []) + [form(name + password)]
        case .pin:
            let pin = secret("pin", .pin, 12, #" inputmode="numeric"\#(described) autofocus"#)
            forms = [form(pin), form(#"<input name="otherWay" type="hidden" value="1">"#, .otherWay)]
        }
        return Page(
            title: texts[.signIn],
            texts,
            """
            <h1>\(texts[.signIn].markup)</h1>
            \(alert)
            \(forms.joined(separator: "\n<hr>\n"))
            <p>\(texts[.explanation].markup)</p>
            """,
            // Reloads just after the end, and from an explicit address: a plain reload would send the form again.
            head: timeLeft.map {
                #"<meta http-equiv="refresh" content="\#(max(0, $0.components.seconds) + 1); url=\#(action.markup)">"#
            } ?? ""
        )
    }

    /// Shows a code for another device. The page reloads while the user is busy there.
    package static func deviceCode(_ code: DeviceCode, picture: String?, _ texts: PromptTexts = .english) -> Page {
        let places = [code.address, code.host].map { "<strong>\($0.markup)</strong>" }
        return Page(
            title: texts[.deviceCodeTitle],
            texts,
            """
            <h1>\(texts[.deviceCodeTitle].markup)</h1>
            <p>\(texts.markup(.instruction, ["address": places[0], "host": places[1]]))</p>
            <p class="code">\(code.code.markup)</p>
            \(picture ?? "")
            <p><strong>\(texts[.warning].markup)</strong></p>
            <p>\(texts[.goesOn].markup)</p>
            """,
            refreshes: true
        )
    }

    package static func message(_ headline: String, _ text: String, _ texts: PromptTexts = .english) -> Page {
        Page(title: headline, texts, "<h1>\(headline.markup)</h1>\n<p role=\"status\">\(text.markup)</p>")
    }

    /// Forwards a browser to an address. The file is readable only by its user, whereas a command line is visible to
    /// all.
    static func leadingTo(_ address: String, _ texts: PromptTexts) -> Page {
        Page(
            title: texts[.signIn],
            texts,
            #"<p><a href="\#(address.markup)">\#(texts[.goOn].markup)</a></p>"#,
            head: #"<meta http-equiv="refresh" content="0; url=\#(address.markup)">"#
        )
    }

    private init(title: String, _ texts: PromptTexts, _ body: String, refreshes: Bool = false, head: String = "") {
        let refresh = refreshes ? #"<meta http-equiv="refresh" content="3">"# : ""
        html = """
            <!DOCTYPE html>
            <html lang="\(texts.language.rawValue)">
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            \(head)\(refresh)
            <title>\(title.markup)</title>
            <style>
            body { font: 1.125rem/1.5 sans-serif; max-width: 32rem; margin: 10vh auto; padding: 0 1rem }
            p, h1 { overflow-wrap: anywhere }
            label, input, button { display: block; font: inherit; box-sizing: border-box }
            input { width: 100%; padding: .5rem; margin: .25rem 0 1rem }
            button { padding: .5rem 1.5rem }
            .notice { border-left: .5rem solid #b00020; padding-left: 1rem }
            .code { font: bold 2rem monospace; letter-spacing: .1em }
            svg { width: 16rem; height: 16rem; background: #fff }
            </style>
            </head>
            <body>
            <main>
            \(body)
            </main>
            </body>
            </html>

            """
    }
}
