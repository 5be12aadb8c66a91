// A C target needs a source file. This one includes no header: the C compiler does not know the path of
// CoreFoundation's headers; only the Swift importer does.
