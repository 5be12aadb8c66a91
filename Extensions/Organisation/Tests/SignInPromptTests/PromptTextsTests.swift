@_spi(Extensions) import SharedDevice
import Testing

@testable import SignInPrompt

@Suite("The languages of the prompt")
struct PromptTextsTests {
    private typealias Prompt = SignInPrompt

    @Test(
        "every language has every sentence, with the same places for values",
        arguments: PromptTexts.Language.allCases
    )
    func complete(language: PromptTexts.Language) {
        let sentences = language.sentences
        let english = PromptTexts.Language.english.sentences
        #expect(Set(sentences.keys) == Set(PromptTexts.Key.allCases.map(\.rawValue)))
        for (key, sentence) in sentences {
            #expect(!sentence.isEmpty && places(sentence) == places(english[key] ?? ""), "\(key)")
        }
    }

    private func places(_ sentence: String) -> [String] {
        sentence.split(separator: "{", omittingEmptySubsequences: false).dropFirst().map {
            String($0.prefix { $0 != "}" })
        }.sorted()
    }

    @Test(
        "the language is that of the session's locale",
        arguments: [
            ([:], nil), (["LANG": ""], nil), (["LANG": "C.UTF-8"], nil), (["LC_ALL": "POSIX", "LANG": "de_DE"], nil),
            (["LANG": "de_AT.UTF-8"], .german), (["LANG": "de_DE", "LC_MESSAGES": "es_MX.UTF-8"], .spanish),
            (["LANG": "de_DE", "LC_MESSAGES": "es", "LC_ALL": "tr_TR.UTF-8"], .turkish),
            (["LANG": "de_DE", "LANGUAGE": "fr:zh_TW:tr"], .traditionalChinese),
            (["LANG": "C", "LANGUAGE": "de"], nil), (["LANG": "zh_HK.UTF-8"], .traditionalChinese),
            (["LANG": "zh_CN.UTF-8"], .english), (["LANG": "zh_MO"], .traditionalChinese),
            (["LANG": "fr_FR.UTF-8"], .english),
            (["LANG": "sr_RS@latin", "LANGUAGE": ":"], .english), (["LANG": "."], nil),
        ] as [([String: String], PromptTexts.Language?)]
    )
    func session(environment: [String: String], language: PromptTexts.Language?) {
        #expect(PromptTexts.Language(environment: environment) == language)
    }

    @Test(
        "without a locale, the browser's preference decides",
        arguments: [
            ("", nil), ("fr", nil), ("de-DE,de;q=0.9,en;q=0.8", .german), ("en;q=0.5, tr ;q=0.7", .turkish),
            ("zh-Hant-HK", .traditionalChinese), ("zh-CN,es;q=0.1", .spanish), ("de;q=0", nil), ("de;q=x, *", nil),
            (";,;q=2,-", nil), ("zh-Hans-HK", nil), ("zh-Hans-TW,tr;q=0.5", .turkish), ("zh-Hant", .traditionalChinese),
            ("zh-Hant-CN", .traditionalChinese), ("zh-TW", .traditionalChinese), ("zh", nil),
        ] as [(String, PromptTexts.Language?)]
    )
    func browser(accepted: String, language: PromptTexts.Language?) {
        #expect(PromptTexts.Language(accepted: accepted) == language)
    }

    @Test("a page is in the browser's language, unless the session has a locale")
    func page() {
        let place = Prompt.Place(port: 4711, path: "/0123", problem: nil)
        let visit = Prompt.Event.visited(Prompt.Visitor(1), LoopbackRequest(place.path, languages: "es"))
        for (language, button) in [(nil, "Iniciar sesión"), (.german, "Anmelden")] as [(PromptTexts.Language?, String)]
        {
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
        #expect(texts.text(of: wrong, isForPassword: true).hasPrefix("Benutzername oder Passwort ist falsch"))
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
