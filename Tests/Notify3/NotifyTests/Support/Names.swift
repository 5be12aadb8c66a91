import Foundation

/// A name that no other test uses.
func uniqueName(_ hint: String = "test") -> String { "com.example.notify.\(hint).\(UUID().uuidString)" }

/// The constant as the number that functions return.
func status(_ value: UInt32) -> Int32 { Int32(value) }
