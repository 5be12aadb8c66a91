/// The version of the package: of its programs, of the C library and of the device's broker.
///
/// The packaging reads the number from this file (Packaging/version), so that it stands in one place.
package enum ProjectVersion {
    /// By the rules of semantic versioning.
    package static let number = "1.0.0"

    /// What a program prints for `--version`, without the end of the line.
    package static func line(of program: String) -> String { "\(program) \(number)" }
}
