import SharedDeviceTestKit
import Testing

@Test func aSignOutLeavesNothingOfThePerson() async throws {
    let app = TestApp("org.example.notes", executable: TestApp.built("notes"))
    let device = try await TestDevice(apps: [app])
    try await device.signIn("ada")
    try await device.app("org.example.notes").waitForMarker("the secret of ada")
    try await device.signOut(deadline: .seconds(30)).requireClean(of: "the secret of ada")
}
