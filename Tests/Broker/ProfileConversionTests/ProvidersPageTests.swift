import DeviceConfiguration
import Foundation
import Testing

@Suite("The configurations in the documentation of providers")
struct ProvidersPageTests {
    @Test("each of the four configurations names a provider and has no unknown key")
    func configurations() throws {
        let page = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../../../Documentation/Providers.md").standardized
        let blocks = try String(contentsOf: page, encoding: .utf8).components(separatedBy: "```json\n").dropFirst()
            .compactMap { $0.components(separatedBy: "```").first }
        #expect(blocks.count == 4)
        for block in blocks {
            let configuration = try ManagedConfiguration(json: Data(block.utf8), file: "Providers.md")
            #expect(configuration.organisation != nil && configuration.identity == .oidc, "\(block)")
            #expect(configuration.unknownKeys == [] && configuration.warnings == [], "\(block)")
        }
    }
}
