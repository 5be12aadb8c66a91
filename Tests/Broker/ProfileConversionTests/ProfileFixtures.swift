import DeviceConfiguration
import Foundation

func plistXML(_ element: String) -> String {
    """
    <?xml version="1.0" encoding="UTF-8"?>
    <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
    <plist version="1.0">\(element)</plist>
    """
}

func binaryPlist(_ value: [String: Any]) throws -> Data {
    try PropertyListSerialization.data(fromPropertyList: value, format: .binary, options: 0)
}

func fixture(_ name: String) throws -> Data {
    let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    return try Data(contentsOf: tests.appendingPathComponent("Fixtures").appendingPathComponent(name))
}

func convert(_ content: Data) throws -> ConvertedProfile { try ConvertedProfile(content, file: "managed") }

func convert(_ text: String) throws -> ConvertedProfile { try convert(Data(text.utf8)) }

func conversionError(_ content: Data) -> ManagedConfigurationError? {
    do throws(ManagedConfigurationError) {
        _ = try ConvertedProfile(content, file: "managed")
        return nil
    } catch {
        return error
    }
}

func conversionError(_ text: String) -> ManagedConfigurationError? { conversionError(Data(text.utf8)) }
