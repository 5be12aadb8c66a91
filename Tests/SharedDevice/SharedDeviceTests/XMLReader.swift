import Foundation
import Testing

#if canImport(FoundationXML)
import FoundationXML
#endif

/// The elements of an XML document in order, and its text, attributes included.
final class XMLReader: NSObject, XMLParserDelegate {
    private(set) var elements: [(name: String, attributes: [String: String])] = []
    private(set) var text = ""

    init(_ document: String) throws {
        super.init()
        let parser = XMLParser(data: Data(document.utf8))
        parser.delegate = self
        let isWellFormed = parser.parse()
        try #require(isWellFormed, "\(String(describing: parser.parserError)) in line \(parser.lineNumber)")
    }

    convenience init(file: String) throws { try self.init(String(contentsOfFile: file, encoding: .utf8)) }

    func count(_ name: String) -> Int { elements.count { $0.name == name } }

    func parser(
        _ parser: XMLParser,
        didStartElement name: String,
        namespaceURI: String?,
        qualifiedName: String?,
        attributes: [String: String]
    ) {
        elements.append((name, attributes))
        text += attributes.values.joined(separator: " ")
    }

    func parser(_ parser: XMLParser, foundCharacters string: String) { text += string }
}
