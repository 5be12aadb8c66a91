// A C target needs a source file. This one does not include the header: the C compiler, unlike the Swift importer, is not told
// where CoreFoundation's headers are.
