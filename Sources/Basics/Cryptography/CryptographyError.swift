import COpenSSL

/// An operation failed, whatever a stranger sent: memory is exhausted, or openssl.cnf disables the algorithm.
public struct CryptographyError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The failed operation, and OpenSSL's reason.
    public let description: String

    init(_ operation: String) { description = "\(operation): \(Self.reasonOfThisThread())" }

    /// The latest entry of this thread's error queue, which is emptied.
    static func reasonOfThisThread() -> String {
        var text = [CChar](repeating: 0, count: 256)
        let code = ERR_peek_last_error()
        ERR_clear_error()
        guard code != 0 else { return "OpenSSL gives no reason" }
        ERR_error_string_n(code, &text, text.count)
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
