// A C target needs a source file. This one includes no header: the C compiler is not told where CoreFoundation's headers are. The Swift
// importer is.
