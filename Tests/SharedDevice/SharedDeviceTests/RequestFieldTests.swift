import DBus
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@Suite("Request fields as programs in other languages write them")
struct RequestFieldTests {
    @Test("a session number may have any integer type, and refusals name the wrong field")
    func fields() async throws {
        let device = try await DeviceOnPrivateBus()
        let control = device.application("control")
        let program = try OtherProgram(device)
        try await control.signIn("ada")
        let session = try await program.ask().session.epoch
        try await control.signOutCurrent()
        try await program.finish(session)
        let values: [DBusValue] = [
            .int32(try #require(Int32(exactly: session))), .int64(Int64(session)),
            .uint32(try #require(UInt32(exactly: session))), .uint64(session),
        ]
        for value in values { #expect(try await program.progress(value) == .finished, "\(value)") }
        for (session, progress, text) in [
            (nil, "finished", "the request lacks “session”"),
            (.string("1"), "finished", "“session” is a string, and has to be a whole number"),
            (.int64(-1), "finished", "out of place, and has to be a whole number that is not negative"),
            (.uint64(1), "done", "one of “begun”, “failed”, “finished”"),
        ] as [(DBusValue?, String, String)] {
            var fields: BrokerProtocol.Fields = ["progress": .string(progress)]
            fields["session"] = session
            let refusal = await #expect(throws: SharedDeviceError.self, "\(text)") {
                _ = try await program.call(.reportCleanup, fields)
            }
            #expect(refusal?.message.contains(text) == true, "\(String(describing: refusal))")
            // The log contains the refusal, which must not repeat the request's text: that may name a person.
            #expect(refusal?.message.contains("done") == false)
        }
    }
}
