import Foundation

/// The forms that a configuration may have. A file's content tells which, never its name.
package enum ConfigurationFormat: String, Sendable {
    case json
    case propertyList

    /// What a person calls it.
    package var name: String {
        switch self {
        case .json: "JSON"
        case .propertyList: "property list"
        }
    }

    /// What a content looks like before it is parsed.
    enum Appearance: Equatable {
        case json
        case xmlPropertyList
        case binaryPropertyList
        /// A signature (CMS) around a profile. `encoding` is what OpenSSL calls its form.
        case signed(encoding: String)
    }

    static func appearance(of content: Data) -> Appearance {
        var bytes = content[...]
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { bytes = bytes.dropFirst(3) }
        bytes = bytes.drop { [0x20, 0x09, 0x0A, 0x0D].contains($0) }
        if bytes.starts(with: Data("bplist".utf8)) { return .binaryPropertyList }
        if bytes.first == UInt8(ascii: "<") { return .xmlPropertyList }
        if bytes.starts(with: Data("-----BEGIN ".utf8)) { return .signed(encoding: "pem") }
        // A DER sequence whose length takes more than one byte, or is indefinite. In JSON a 0 begins no object.
        if bytes.first == 0x30, let length = bytes.dropFirst().first, length >= 0x80 { return .signed(encoding: "der") }
        return .json
    }

    /// How each type of value is written in this form, for remedies.
    func writing(_ type: ValueType) -> String {
        switch (self, type) {
        case (.json, .boolean): "true or false, without quotation marks"
        case (.propertyList, .boolean): "<true/> or <false/>"
        case (.json, .flag): "0 or 1, without quotation marks"
        case (.propertyList, .flag): "<integer>0</integer> or <integer>1</integer>"
        case (.json, .string): "a string"
        case (.propertyList, .string): "<string>…</string>"
        case (.json, .strings): "an array of strings"
        case (.propertyList, .strings): "<array> of <string>…</string>"
        case (.json, .number): "a number, without quotation marks"
        case (.propertyList, .number): "<integer>…</integer> or <real>…</real>"
        case (.json, .dictionary): "an object, { … }"
        case (.propertyList, .dictionary): "<dict>…</dict>"
        }
    }

    enum ValueType {
        case boolean
        case flag
        case string
        case strings
        case number
        case dictionary
    }
}
