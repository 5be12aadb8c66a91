// SwiftPM wants a source file; the functions are defined in Swift, in module `notify`.
