import Foundation

/// A name of the test's own.
func uniqueName(_ hint: String = "test") -> String { "com.example.notify.\(hint).\(UUID().uuidString)" }

/// What a function returned, as the number that the constants have.
func status(_ value: UInt32) -> Int32 { Int32(value) }
