import DeviceConfiguration
@_spi(Extensions) import SharedDevice
import Testing

@_spi(Extensions) @testable import SharedDeviceTestKit

@Suite("Reports of checks")
struct ReportTests {
    @Test("the page's script consists of the console's modules and loads nothing")
    func script() {
        let script = TimelinePage.script
        for name in ["texts", "dom", "words", "day", "rounds", "drawing", "report"] {
            #expect(script.contains("const module_\(name) = (() => {"), "\(name)")
        }
        #expect(script.contains("const { axisOf, meaningOf, saidOf, signs, spread, tableOf } = module_rounds;"))
        #expect(script.contains("waterfall, ") && script.contains(#""sign.signOut": "sign-out""#))
        let lines = script.split(separator: "\n")
        #expect(!lines.contains { $0.hasPrefix("import ") || $0.hasPrefix("export ") })
        #expect(!script.contains("]]>") && !script.contains("</script"), "it does not close the element around it")
    }

    @Test("apps are shown by the shortest unique name and found by it")
    func names() {
        let keys = [
            "org.example.notes", "org.example.shop (/usr/bin/shop, uid 0)", "/usr/bin/till (uid 7)", "org.a.desk",
            "org.b.desk",
            "org.c.twin (/x, uid 1)", "org.c.twin (/y, uid 1)", "org.example.broker",
        ]
        let names = AppNames(keys, reserved: ["broker"])
        #expect(
            keys.map { names[$0] } == [
                "notes", "shop", "till", "org.a.desk", "org.b.desk", "org.c.twin (/x, uid 1)", "org.c.twin (/y, uid 1)",
                "org.example.broker",
            ]
        )
        for key in keys { #expect(names.keys(for: names[key]) == [key]) }
        #expect(names.keys(for: "org.example.shop") == [keys[1]])
        #expect(names.keys(for: "desk") == ["org.a.desk", "org.b.desk"])
        #expect(names.keys(for: "org.c.twin").count == 2 && names.keys(for: "nobody").isEmpty)
    }

    @Test("times are rounded sensibly, and counts have the right plural")
    func numbers() {
        #expect(
            [0.04, 1.26, 9.96, 10, 41.4, 5000, 30_000].map(Text.milliseconds) == [
                "0 ms", "1.3 ms", "10 ms", "10 ms", "41 ms", "5000 ms", "30000 ms",
            ]
        )
        #expect([0, 1, 2].map { Text.count($0, "app") } == ["0 apps", "1 app", "2 apps"])
    }
}
