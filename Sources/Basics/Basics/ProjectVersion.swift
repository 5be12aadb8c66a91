/// The version of the package: of its programs, of the C library and of the device's broker.
///
/// The packaging reads the number from this file (Packaging/version), so that it is defined once.
public enum ProjectVersion {
    /// Follows semantic versioning.
    public static let number = "1.0.0"

    /// The output of a program for `--version`, without the newline.
    public static func line(of program: String) -> String { "\(program) \(number)" }
}
