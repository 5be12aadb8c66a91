import Basics
import Identity
import Testing

@Suite("Addresses and forms")
struct HTTPAddressTests {
    @Test("https is allowed everywhere, http on this machine only")
    func accepted() {
        for text in [
            "https://login.example.com", "https://login.example.com:8443/a/b?c=d", "HTTPS://Login.Example.com/",
            "http://localhost:8080/x", "http://127.0.0.1/", "http://[::1]:80/", "https://[2001:db8::1]/",
        ] {
            #expect(HTTPAddress(text) != nil, "\(text)")
        }
        #expect(HTTPAddress("https://A.example:8443/p?code=secret")?.description == "https://a.example:8443/p")
        #expect(
            HTTPAddress("https://a.example/?x=1")?.adding(query: [("y", "a b+/")])
                == "https://a.example/?x=1&y=a%20b%2B%2F"
        )
        #expect(HTTPAddress("https://a.example")?.adding(query: [("y", "é")]) == "https://a.example?y=%C3%A9")
    }

    @Test(
        "malformed addresses are rejected",
        arguments: [
            "", "login.example.com", "http://login.example.com/", "http://localhost.example.com/", "ftp://localhost/",
            "file:///etc/passwd", "https://", "https:///path", "https://user@example.com/",
            "https://user:p@example.com/",
            "https://example.com/#fragment", "https://exa mple.com/", "https://example.com/\u{0}",
            "https://example.com\\@b/",
            "https://exämple.com/", "http://127.0.0.1@example.com/", "javascript:alert(1)",
            "https://example.com/\r\nHost: b",
        ]
    )
    func refused(text: String) { #expect(HTTPAddress(text) == nil) }

    @Test("forms are decoded; repeated names and broken escapes are rejected")
    func forms() {
        let fields = [("state", "a&b=c%"), ("code", "é +/?"), ("empty", "")]
        #expect(FormFields.decode(FormFields.encode(fields)) == Dictionary(uniqueKeysWithValues: fields))
        #expect(FormFields.decode("a=1+2&b") == ["a": "1 2", "b": ""])
        #expect(FormFields.decode("") == [:])
        for text in ["a=1&a=2", "a=1&%61=2", "a=%", "a=%1", "a=%zz", "a=%FF", "a=%C3"] {
            #expect(FormFields.decode(text) == nil, "\(text)")
        }
    }
}
