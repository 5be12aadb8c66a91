import Basics

/// The pages of a sign-in: plain HTML without scripts that works with keyboard and screen reader.
package struct Page: Sendable, Hashable {
    let html: String

    /// The form for name and password.
    ///
    /// - Parameters:
    ///   - action: the path to which the form is sent.
    ///   - notice: the reason why it is shown again.
    ///   - timeLeft: the time until the page reloads, to show that the sign-in is over.
    package static func form(
        action: String,
        username: String,
        notice: String?,
        timeLeft: Duration? = nil
    ) -> Page {
        let alert = notice.map { #"<p class="notice" role="alert" id="notice">\#($0.markup)</p>"# } ?? ""
        // After a mistake only the password is missing.
        let (nameFocus, passwordFocus) = username.isEmpty ? (" autofocus", "") : ("", " autofocus")
        let described = notice == nil ? "" : #" aria-describedby="notice""#
        return Page(
            title: "Sign in",
            """
            <h1>Sign in</h1>
            \(alert)
            <form method="post" action="\(action.markup)" accept-charset="utf-8">
            <label for="username">User name</label>
            <input id="username" name="username" value="\(username.markup)" autocomplete="off" autocapitalize="none" \
            spellcheck="false" maxlength="256" required\(nameFocus)>
            <label for="password">Password</label>
            <input id="password" name="password" type="password" autocomplete="off" maxlength="1024" required\(described)\(passwordFocus)>
            <button type="submit">Sign in</button>
            </form>
            <p>You sign in to this device, and to all of its apps. Close the window to cancel.</p>
            """,
            // Reloads just after the end, and from an explicit address: a plain reload would send the form again.
            head: timeLeft.map {
                #"<meta http-equiv="refresh" content="\#(max(0, $0.components.seconds) + 1); url=\#(action.markup)">"#
            } ?? ""
        )
    }

    /// Shows a code for another device. The page reloads while the user is busy there.
    package static func deviceCode(_ code: DeviceCode, picture: String?) -> Page {
        Page(
            title: "Sign in on another device",
            """
            <h1>Sign in on another device</h1>
            <p>Open <strong>\(code.address.markup)</strong> there, at <strong>\(code.host.markup)</strong>, and type in this code:</p>
            <p class="code">\(code.code.markup)</p>
            \(picture ?? "")
            <p><strong>\(DeviceCodeText.warning.markup)</strong></p>
            <p>This page goes on by itself when you have finished there. Close the window to cancel.</p>
            """,
            refreshes: true
        )
    }

    package static func message(_ headline: String, _ text: String) -> Page {
        Page(title: headline, "<h1>\(headline.markup)</h1>\n<p role=\"status\">\(text.markup)</p>")
    }

    /// Forwards a browser to an address. The file is readable only by its user, whereas a command line is visible to
    /// all.
    static func leadingTo(_ address: String) -> Page {
        Page(
            title: "Sign in",
            #"<p><a href="\#(address.markup)">Go on to the sign-in</a></p>"#,
            head: #"<meta http-equiv="refresh" content="0; url=\#(address.markup)">"#
        )
    }

    private init(title: String, _ body: String, refreshes: Bool = false, head: String = "") {
        let refresh = refreshes ? #"<meta http-equiv="refresh" content="3">"# : ""
        html = """
            <!DOCTYPE html>
            <html lang="en">
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            \(head)\(refresh)
            <title>\(title.markup)</title>
            <style>
            body { font: 1.125rem/1.5 sans-serif; max-width: 32rem; margin: 10vh auto; padding: 0 1rem }
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
