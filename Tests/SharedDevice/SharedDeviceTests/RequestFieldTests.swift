import DBus
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@Suite("Request fields as programs in other languages write them")
struct RequestFieldTests {
    private func refusal(of program: OtherProgram, _ fields: BrokerProtocol.Fields) async -> String {
        do throws(any Error) {
            try await program.call(.reportCleanup, fields)
            return "it was taken"
        } catch {
            return "\(error)"
        }
    }

    @Test("a session number may have any integer type")
    func integers() async throws {
        let device = try await DeviceOnPrivateBus()
        let control = device.application("control")
        let program = try OtherProgram(device)
        let types: [(UInt64) throws -> DBusValue] = [
            { .int32(try #require(Int32(exactly: $0))) }, { .int64(Int64($0)) },
            { .uint32(try #require(UInt32(exactly: $0))) }, { .uint64($0) },
        ]
        for type in types {
            try await control.signIn("ada")
            let session = try #require(try await program.call(.getCurrentAccount)["epoch"]?.unsignedValue)
            try await control.signOutCurrent()
            let value = try type(session)
            try await program.call(.reportCleanup, ["session": value, "progress": .string("finished")])
            #expect(try await program.progress(value) == .finished, "\(value)")
        }
    }

    @Test("a refusal names the wrong field and the expected type")
    func refusals() async throws {
        let device = try await DeviceOnPrivateBus()
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
