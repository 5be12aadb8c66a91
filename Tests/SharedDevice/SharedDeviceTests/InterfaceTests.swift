import DBus
import Foundation
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@_spi(Extensions) @testable import SharedDevice

/// The installed interface description, its documentation page, and the broker's real behaviour.
@Suite("The documented D-Bus interface")
struct InterfaceTests {
    private struct Method: Equatable {
        var inputs = ""
        var outputs = ""
    }

    /// The methods and properties of the broker's interface in an XML document.
    private struct Description {
        private(set) var methods: [String: Method] = [:]
        private(set) var properties: [String: String] = [:]

        init(_ document: String) throws {
            var isInside = false
            var method = ""
            for (element, attributes) in try XMLReader(document).elements {
                let (name, type) = (attributes["name"] ?? "", attributes["type"] ?? "")
                switch element {
                case "interface": isInside = name == BrokerProtocol.interface
                case "method" where isInside:
                    method = name
                    methods[name] = Method()
                case "arg" where isInside && attributes["direction"] == "in": methods[method]?.inputs += type
                case "arg" where isInside: methods[method]?.outputs += type
                case "property" where isInside: properties[name] = type
                default: break
                }
            }
        }
    }

    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appending(path: "../../..").standardized
    private static let file = "Sources/Broker/SharedDeviceBroker/Service/org.notifycenter.SharedDevice1.xml"

    private static func text(_ path: String) throws -> String {
        try String(contentsOf: root.appending(path: path), encoding: .utf8)
    }

    @Test("the broker, its installed description and the page about it agree")
    func introspection() async throws {
        let device = try await DeviceOnPrivateBus()
        let connection = try DBusConnection.open(device.bus.bus)
        let answer = try await connection.callBroker("org.freedesktop.DBus.Introspectable", "Introspect")
        let document = try #require(answer.first?.stringValue)
        let file = try Self.text(Self.file)
        let start = try #require(file.range(of: "  <interface "))
        let end = try #require(file.range(of: "  </interface>\n"))
        #expect(document.contains(file[start.lowerBound..<end.upperBound]))
        #expect(document.contains("org.freedesktop.DBus.Properties"))
        let (described, installed) = (try Description(document), try Description(file))
        #expect(described.methods == installed.methods && described.properties == installed.properties)
        let interface = DBusValue.string(BrokerProtocol.interface)
        let values = try await connection.callBroker("org.freedesktop.DBus.Properties", "GetAll", [interface])
        let fields = try #require(values.first?.fieldsValue)
        #expect(fields.mapValues(\.signature) == installed.properties)
        #expect(fields["InterfaceVersion"] == .uint32(BrokerProtocol.version))
        let page = try Self.text("Documentation/Interface.md")
        for name in Array(installed.methods.keys) + installed.properties.keys {
            #expect(page.contains("`\(name)`"), "\(name)")
        }
        for code in SharedDeviceError.Code.all { #expect(page.contains("`\(code)`"), "\(code)") }
        #expect(page.contains(NotificationName.sharedModeCurrentAccountChanged.rawValue))
        #expect(page.contains("\n| \(BrokerProtocol.version) | this page"))
        #expect(Set(installed.methods.keys) == Set(BrokerProtocol.Method.allCases.map(\.rawValue)))
        for (name, method) in installed.methods {
            let arguments: [DBusValue] = method.inputs.isEmpty ? [] : [.fields([:])]
            #expect(arguments.map(\.signature).joined() == method.inputs, "\(name)")
            do throws(DBusError) {
                let answer = try await connection.callBroker(BrokerProtocol.interface, name, arguments)
                #expect(answer.map(\.signature).joined() == method.outputs, "\(name)")
            } catch {
                // Refused because of missing fields, not because of the signature.
                #expect(error.name?.hasPrefix(BrokerProtocol.errorPrefix) == true, "\(name): \(error)")
            }
            let wrong = await #expect(throws: DBusError.self, "\(name)") {
                _ = try await connection.callBroker(BrokerProtocol.interface, name, arguments + [.string("one more")])
            }
            #expect(wrong?.name == "org.freedesktop.DBus.Error.InvalidArgs", "\(name)")
        }
    }
}
