// SwiftPM requires a source file. The functions are defined in Swift, in module `notify`.
