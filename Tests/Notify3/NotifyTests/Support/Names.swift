import Foundation

/// A name that no other test uses.
func uniqueName(_ hint: String = "test") -> String { "com.example.notify.\(hint).\(UUID().uuidString)" }

/// Converts the constant to the type of the functions' results.
func status(_ value: UInt32) -> Int32 { Int32(value) }
