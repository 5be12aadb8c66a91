/// The introspection document of an object, as `busctl introspect` and its like read it.
struct Introspection: CustomStringConvertible {
    let interfaces: [DBusInterface]
    let children: [String]

    private static let emitsChanges = "org.freedesktop.DBus.Property.EmitsChangedSignal"

    var description: String {
        var lines = [
            "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"",
            " \"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">",
            "<node>",
        ]
        if !interfaces.isEmpty {
            for interface in interfaces + StandardInterfaces.described { lines += described(interface) }
        }
        lines += children.map { "  <node name=\"\(escaped($0))\"/>" }
        lines.append("</node>")
        return lines.joined(separator: "\n") + "\n"
    }

    private func described(_ interface: DBusInterface) -> [String] {
        var lines = ["  <interface name=\"\(escaped(interface.name))\">"]
        for method in interface.methods {
            lines.append("    <method name=\"\(escaped(method.name))\">")
            lines += method.inputs.map { argument($0, " direction=\"in\"") }
            lines += method.outputs.map { argument($0, " direction=\"out\"") }
            lines.append("    </method>")
        }
        for signal in interface.signals {
            lines.append("    <signal name=\"\(escaped(signal.name))\">")
            lines += signal.arguments.map { argument($0, "") }
            lines.append("    </signal>")
        }
        for property in interface.properties {
            let (name, type) = (escaped(property.name), escaped(property.signature))
            lines.append("    <property name=\"\(name)\" type=\"\(type)\" access=\"read\">")
            // Otherwise tools take it for announced by PropertiesChanged.
            lines.append("      <annotation name=\"\(Self.emitsChanges)\" value=\"false\"/>")
            lines.append("    </property>")
        }
        lines.append("  </interface>")
        return lines
    }

    private func argument(_ argument: DBusInterface.Argument, _ direction: String) -> String {
        "      <arg name=\"\(escaped(argument.name))\" type=\"\(escaped(argument.signature))\"\(direction)/>"
    }

    private func escaped(_ text: String) -> String {
        text.reduce(into: "") { result, character in
            switch character {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            default: result.append(character)
            }
        }
    }
}
