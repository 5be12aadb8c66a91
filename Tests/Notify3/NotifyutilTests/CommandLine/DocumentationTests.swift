import Basics
import Foundation
import NotifyCenter
import Testing

@testable import notifyutil

@Suite("Usage, manual and completions name the same options")
struct DocumentationTests {
    /// The options of the parser, Darwin's first.
    private static let options = [
        "-h", "-q", "-v", "-z", "-M", "-R", "-port", "-file", "-check", "-dispatch", "-plain", "-signal", "-p", "-w",
        "-1", "-g", "-s", "--dump", "--ready", "--session", "--system", "--address", "--help", "--version",
    ]

    @Test("the parser, the usage text, the manual and the completions have each option")
    func everyOption() throws {
        let manual = try file("Documentation/man/notifyutil.1")
        let completions = "Packaging/notifyutil-completions"
        let (bash, zsh) = (try file("\(completions)/notifyutil.bash"), try file("\(completions)/_notifyutil"))
        let fish = try file("\(completions)/notifyutil.fish")
        for option in Self.options {
            do throws(Problem) {
                _ = try Parser.parse([option, "1", "1"])
            } catch {
                #expect(!error.description.contains("unrecognized option: \(option)"))
            }
            #expect(Usage.text.contains("\(option) ") || Usage.text.contains("\(option),"), "\(option)")
            // mdoc's Fl macro prints the first hyphen.
            #expect(manual.contains("Fl \(option.dropFirst().replacing("-", with: "\\-"))"), "\(option)")
            let name = option.drop { $0 == "-" }
            let form = option.hasPrefix("--") ? "-l \(name) " : name.count == 1 ? "-s \(name) " : "-o \(name) "
            #expect([bash, zsh].allSatisfy { $0.contains(option) } && fish.contains(form), "\(option)")
        }
    }

    @Test("the examples of notify.conf(5) are read without an error")
    func configuration() throws {
        let lines = try file("Documentation/man/notify.conf.5").split(separator: "\n")
        let examples = lines.map { $0.hasPrefix(".Dl ") ? $0.dropFirst(4) : $0 }.filter { line in
            ["reserve ", "monitor ", "set "].contains { line.hasPrefix($0) } && line.contains("org.example.")
        }
        let parsed = ConfigurationParser.parse(Array(examples.joined(separator: "\n").utf8))
        #expect(parsed.errors == [])
        #expect(parsed.configuration.rules.reservations.map(\.prefix) == ["org.example.power.", "org.example.audit."])
        #expect(parsed.configuration.monitors.map(\.path) == ["/etc/hosts"])
        #expect(parsed.configuration.permanentNames.map(\.state) == [100])
    }

    private func file(_ path: String) throws -> String {
        try String(contentsOfFile: packagePath(path), encoding: .utf8)
    }
}
