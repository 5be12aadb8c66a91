import Basics
import DeviceConfiguration
import Foundation
import Testing

@Suite("The schemas for editors")
struct ConfigurationSchemaTests {
    private static func schema(_ name: String) throws -> JSONValue {
        let path = URL(filePath: #filePath).appending(path: "../../../../../Packaging/schemas/\(name).schema.json")
        let text = [UInt8](try Data(contentsOf: path.standardized))
        return try JSONValue(parsing: text, limits: JSONLimits(size: text.count))
    }

    @Test(
        "each schema has exactly the keys that the broker knows",
        arguments: [("managed-configuration", ManagedConfiguration.keyNames), ("app-manifest", AppManifest.keyNames)]
    )
    func keys(name: String, known: [String]) throws {
        let properties = try #require(Self.schema(name)["properties"]?.object)
        #expect(Set(properties.keys) == Set(known + ["$schema"]))
    }

    @Test("the schemas list the known words and permit a mask, and $schema is a known key")
    func words() throws {
        let properties = try #require(Self.schema("managed-configuration")["properties"])
        for word in try #require(properties["cleanupPolicy"]?["enum"]?.array).compactMap(\.string) {
            #expect(throws: Never.self) { try configuration(#"{"cleanupPolicy": "\#(word)"}"#) }
        }
        let cleanup = try #require(Self.schema("app-manifest")["properties"]?["cleanup"]?["properties"])
        #expect(cleanup["preset"]?["enum"]?.array?.compactMap(\.string) == AdapterPreset.allCases.map(\.rawValue))
        let schema = try Self.schema("app-manifest")
        #expect(schema["required"] == nil)
        let masks = schema["anyOf"]?.array?.filter { $0["properties"]?["masked"]?["const"] == .boolean(true) }
        #expect(masks?.count == 1 && masks?.first?["maxProperties"] == .number(1))
        #expect(try configuration(#"{"$schema": "/a.json"}"#).unknownKeys == [])
        let manifest = #"{"$schema": "/a.json", "id": "org.example.a", "executable": "/usr/bin/true"}"#
        #expect(try AppManifest(json: Data(manifest.utf8), file: "a.json").unknownKeys == [])
    }
}
