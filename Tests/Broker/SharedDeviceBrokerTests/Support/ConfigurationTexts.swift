import Foundation
import SharedDeviceBroker

/// A property list as XML, with this inside.
func plistXML(_ element: String) -> String {
    """
    <?xml version="1.0" encoding="UTF-8"?>
    <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
    <plist version="1.0">\(element)</plist>
    """
}

/// A property list in its binary form.
func binaryPlist(_ value: [String: Any]) throws -> Data {
    try PropertyListSerialization.data(fromPropertyList: value, format: .binary, options: 0)
}

/// The content of a fixture of these tests.
func fixture(_ name: String) throws -> Data {
    let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    return try Data(contentsOf: tests.appendingPathComponent("Fixtures").appendingPathComponent(name))
}

/// What a content means.
func document(_ content: Data) throws -> ManagedConfigurationDocument {
    try ManagedConfigurationDocument(content, file: "managed")
}

func document(_ text: String) throws -> ManagedConfigurationDocument { try document(Data(text.utf8)) }

/// Why a content means nothing; `nil` where it is valid.
func configurationError(_ content: Data) -> ManagedConfigurationError? {
    do throws(ManagedConfigurationError) {
        _ = try ManagedConfigurationDocument(content, file: "managed")
        return nil
    } catch {
        return error
    }
}

func configurationError(_ text: String) -> ManagedConfigurationError? { configurationError(Data(text.utf8)) }
