/// Why a measurement broke off.
struct BenchmarkError: Error, Equatable, CustomStringConvertible {
    struct Code: Equatable {
        /// A program could not be started, or a call to the system failed.
        static let systemCall = Code(.systemCall)
        /// A program that is needed is not on this machine.
        static let missingProgram = Code(.missingProgram)
        /// A peer ended, or said nothing for too long.
        static let peer = Code(.peer)
        /// A peer's output was not understood.
        static let malformedResult = Code(.malformedResult)
        /// The numbers cannot be right: posts were lost, or a time is negative.
        static let wrongCount = Code(.wrongCount)
        /// SIGINT, SIGTERM or SIGHUP.
        static let interrupted = Code(.interrupted)

        private enum Value {
            case systemCall
            case missingProgram
            case peer
            case malformedResult
            case wrongCount
            case interrupted
        }

        private let value: Value

        private init(_ value: Value) {
            self.value = value
        }
    }

    let code: Code
    let description: String

    init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }
}
