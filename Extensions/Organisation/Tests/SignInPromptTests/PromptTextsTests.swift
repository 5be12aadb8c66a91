import CommandParts
@_spi(Extensions) import SharedDevice
import Testing

@testable import SignInPrompt

@Suite("The languages of the prompt")
struct PromptTextsTests {
    private typealias Prompt = SignInPrompt

    @Test("the texts have a sentence for every key of the prompt, and no other besides those of the session’s screen")
    func complete() {
        let keys = Language.english.sentences.keys.filter { !$0.hasPrefix("ending.") && !$0.hasPrefix("screen.") }
        #expect(Set(keys) == Set(PromptTexts.Key.allCases.map(\.rawValue)))
    }

    @Test("a page is in the browser's language, unless the session has a locale")
    func page() {
        let place = Prompt.Place(port: 4711, path: "/0123", problem: nil)
        let visit = Prompt.Event.visited(Prompt.Visitor(1), LoopbackRequest(place.path, languages: "es"))
        for (language, button) in [(nil, "Iniciar sesión"), (.german, "Anmelden")] as [(Language?, String)] {
            var prompt = Prompt(Prompt.Wishes(methods: [.password], surface: .page, language: language))
            _ = [.started, .listening(place), .opened(OpenRequest(name: "r", way: .password))].map { prompt.handle($0) }
            guard case .respond(_, let response)? = prompt.handle(visit).first else {
                Issue.record("there is no page")
                continue
            }
            #expect(response.page.contains(">\(button)</button>"))
            #expect(response.page.contains(#"<html lang="\#(language == nil ? "es" : "de")">"#))
        }
    }

    @Test("a request without the secret path does not change the language")
    func otherPath() {
        let place = Prompt.Place(port: 4711, path: "/0123", problem: nil)
        var prompt = Prompt(Prompt.Wishes(methods: [.password], surface: .page))
        let visits = [(place.path, "es"), ("/", "de"), (Prompt.Place.callback, "de")].enumerated().map {
            Prompt.Event.visited(Prompt.Visitor(UInt64($0)), LoopbackRequest($1.0, languages: $1.1))
        }
        _ = ([.started, .listening(place), .opened(OpenRequest(name: "r", way: .password))] + visits)
            .map { prompt.handle($0) }
        _ = prompt.handle(.timeOver)
        #expect(prompt.lastPage?.page.contains(#"<html lang="es">"#) == true)
    }

    @Test("an error is translated, and an unusual one keeps the text for the administrator")
    func errors() {
        let texts = PromptTexts(.german)
        let wrong = SharedDeviceError(.authenticationFailed, attempted: "sign in", message: "no {username}")
        #expect(PromptTexts.english.text(of: wrong) == "no {username}")
        #expect(texts.text(of: wrong, wrong: .wrongPassword).hasPrefix("Benutzername oder Passwort ist falsch"))
        #expect(texts.text(of: wrong, wrong: .wrongBadge).hasPrefix("Ausweis oder PIN ist falsch"))
        #expect(texts.text(of: wrong).hasPrefix("Die Anmeldung wurde nicht bestätigt"))
        let refused = SharedDeviceError(.notPermitted, attempted: "sign in", message: "not here")
        #expect(texts.text(of: refused).hasPrefix("Das ist hier nicht erlaubt"))
        let other = SharedDeviceError(.brokerFailed, attempted: "sign in", message: "disk {message} full")
        #expect(texts.text(of: other).hasSuffix(": disk {message} full"))
    }

    @Test("values are escaped on a page, and are not filled again")
    func values() {
        let code = DeviceCode(code: "A<B", address: "https://login.example/{host}?<b>")
        let page = LoopbackResponse(.ok, .deviceCode(code, picture: nil, PromptTexts(.turkish))).page
        #expect(page.contains("<strong>https://login.example/{host}?&lt;b&gt;</strong>") && page.contains("A&lt;B"))
    }
}
