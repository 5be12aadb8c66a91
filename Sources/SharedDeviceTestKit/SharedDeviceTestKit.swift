// A device of a test's own.
