/// The text at `pointer`, or `nil` where C says NULL.
func text(_ pointer: UnsafePointer<CChar>?) -> String? {
    pointer.map { String(cString: $0) }
}
