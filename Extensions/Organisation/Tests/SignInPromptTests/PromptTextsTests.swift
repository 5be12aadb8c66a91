import CommandParts
import HTTPListening
@_spi(Extensions) import SharedDevice
import Testing

@testable import SignInPrompt

@Suite("The languages of the prompt")
struct PromptTextsTests {
    private typealias Prompt = SignInPrompt

    @Test("each key of the prompt has a sentence, and no sentence of the prompt is unused")
    func complete() {
        let keys = Language.english.sentences.keys.filter { !$0.hasPrefix("ending.") && !$0.hasPrefix("screen.") }
        #expect(Set(keys) == Set(PromptTexts.Key.allCases.map(\.rawValue)))
    }

    @Test("a page is in its browser's language, unless the session has a locale")
    func page() {
        let place = Prompt.Place(port: 4711, path: "/0123", problem: nil)
        // A request without the secret path does not change the language.
        let visits = [(place.path, "es"), ("/", "de"), (Prompt.Place.callback, "de")].enumerated().map {
            Prompt.Event.visited(Prompt.Visitor(UInt64($0)), LoopbackRequest(path: $1.0, languages: $1.1))
        }
        for (language, name, button) in [(nil, "es", "Iniciar sesión"), (.german, "de", "Anmelden")]
            as [(Language?, String, String)]
        {
            var prompt = Prompt(Prompt.Wishes(methods: [.password], surface: .page, language: language))
            _ = [.started, .listening(place), .opened(OpenRequest(name: "r", way: .password))].map { prompt.handle($0) }
            guard case .respond(_, let response)? = prompt.handle(visits[0]).first else {
                Issue.record("there is no page")
                continue
            }
            #expect(response.body.contains(">\(button)</button>"))
            #expect(response.body.contains(#"<html lang="\#(name)">"#))
            for visit in visits.dropFirst() { _ = prompt.handle(visit) }
            _ = prompt.handle(.timeOver)
            #expect(prompt.lastPage?.body.contains(#"<html lang="\#(name)">"#) == true)
        }
    }

    @Test("an error is translated or keeps its text, and values are escaped and not filled")
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
        let code = DeviceCode(code: "A<B", address: "https://login.example/{host}?<b>")
        let page = ListenerResponse(page: .deviceCode(code, picture: nil, PromptTexts(.turkish))).body
        #expect(page.contains("<strong>https://login.example/{host}?&lt;b&gt;</strong>") && page.contains("A&lt;B"))
    }
}
