import CommandParts
import FoundationEssentials
import SharedDevice
import Testing

@Suite("The languages of the texts for the person at the device")
struct TextsTests {
    @Test("every language has every sentence, with the same places for values", arguments: Language.allCases)
    func complete(language: Language) {
        let sentences = language.sentences
        let english = Language.english.sentences
        #expect(!english.isEmpty && sentences.keys == english.keys)
        for (key, sentence) in sentences {
            #expect(!sentence.isEmpty && places(sentence) == places(english[key] ?? ""), "\(key)")
        }
    }

    private func places(_ sentence: String) -> [String] {
        sentence.split(separator: "{", omittingEmptySubsequences: false).dropFirst().map {
            String($0.prefix { $0 != "}" })
        }.sorted()
    }

    @Test("each reason for the end of a session has a notice with the time")
    func ending() {
        for reason in [SessionEnd.Reason.inactivity, .shiftEnd, .longestSession, .lock, .other] {
            let end = SessionEnd(at: .distantFuture, reason: reason, isSoon: true)
            let notice = Texts(.german).notice(of: end, at: "{time}9")
            #expect(notice.contains("um {time}9 Uhr abgemeldet"), "\(notice)")
        }
        let lock = SessionEnd(at: .distantFuture, reason: .inactivity, isSoon: true, locks: true)
        #expect(Texts(.english).notice(of: lock, at: "14:05").hasPrefix("The screen will be locked at 14:05"))
        #expect(Texts(.turkish)["ending.stay"] == "Oturumu açık tut")
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
        ] as [([String: String], Language?)]
    )
    func session(environment: [String: String], language: Language?) {
        #expect(Language(environment: environment) == language)
    }

    @Test(
        "without a locale, the browser's preference decides",
        arguments: [
            ("", nil), ("fr", nil), ("de-DE,de;q=0.9,en;q=0.8", .german), ("en;q=0.5, tr ;q=0.7", .turkish),
            ("zh-Hant-HK", .traditionalChinese), ("zh-CN,es;q=0.1", .spanish), ("de;q=0", nil), ("de;q=x, *", nil),
            (";,;q=2,-", nil), ("zh-Hans-HK", nil), ("zh-Hans-TW,tr;q=0.5", .turkish), ("zh-Hant", .traditionalChinese),
            ("zh-Hant-CN", .traditionalChinese), ("zh-TW", .traditionalChinese), ("zh", nil),
        ] as [(String, Language?)]
    )
    func browser(accepted: String, language: Language?) {
        #expect(Language(accepted: accepted) == language)
    }
}
