import DBusTransport
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("Fields of requests, as programs in other languages write them")
struct RequestFieldTests {
    /// What the broker answers to a request that it refuses.
    private func refusal(of program: OtherProgram, _ fields: BrokerProtocol.Fields) async -> String {
        do throws(any Error) {
            try await program.call(.reportCleanup, fields)
            return "it was taken"
        } catch {
            return "\(error)"
        }
    }

    @Test("a session's number may have any integer type", arguments: ["int32", "int64", "uint32", "uint64"])
    func integers(_ type: String) async throws {
        let device = try await TestDevice()
        let control = device.application("control")
        try await control.signIn("ada")
        let program = try OtherProgram(device)
        let session = try #require(try await program.call(.getCurrentAccount)["epoch"]?.unsignedValue)
        try await control.signOutCurrent()
        let value: DBusValue =
            switch type {
            case "int32": .int32(try #require(Int32(exactly: session)))
            case "int64": .int64(Int64(session))
            case "uint32": .uint32(try #require(UInt32(exactly: session)))
            default: .uint64(session)
            }
        try await program.call(.reportCleanup, ["session": value, "progress": .string("finished")])
        #expect(try await program.progress(value) == .finished)
    }

    @Test("a refusal says which field is wrong, and what it has to be")
    func refusals() async throws {
        let device = try await TestDevice()
        let program = try OtherProgram(device)
        #expect(await refusal(of: program, ["progress": .string("finished")]).contains("the request lacks “session”"))
        let text = await refusal(of: program, ["session": .string("1"), "progress": .string("finished")])
        #expect(text.contains("“session” is a string, and has to be a whole number"), "\(text)")
        let negative = await refusal(of: program, ["session": .int64(-1), "progress": .string("finished")])
        #expect(negative.contains("“session”") && negative.contains("not negative"), "\(negative)")
        let word = await refusal(of: program, ["session": .uint64(1), "progress": .string("done")])
        #expect(word.contains("one of “begun”, “failed”, “finished”"), "\(word)")
        #expect(!word.contains("done"), "the log has the refusal, and a request's text may name a person")
    }
}
