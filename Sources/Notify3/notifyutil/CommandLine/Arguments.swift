/// The command line's arguments as they were given. `CommandLine.arguments` puts U+FFFD for what is no UTF-8, and so would have
/// another name posted than was asked for.
enum Arguments {
    static func read(
        _ pointers: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>,
        count: Int
    ) throws(Invocation.Refusal) -> [String] {
        var arguments: [String] = []
        // The first is the program.
        for index in 0..<count where index > 0 {
            guard let pointer = pointers[index] else { break }
            guard let argument = String(validatingCString: pointer) else {
                throw Invocation.Refusal("argument \(index) is no UTF-8 text: \(String(cString: pointer))")
            }
            arguments.append(argument)
        }
        return arguments
    }
}
