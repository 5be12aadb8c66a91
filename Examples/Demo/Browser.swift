import DemoStage
import DeviceConfiguration
import ExampleSupport
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDeviceTestKit

/// The demonstration's fourth listener: Chromium, which does not know shared devices. `shared-device run` takes part on
/// its behalf, and runs it while a user is signed in.
final class Browser {
    static let name = "chromium"
    static let adapter = "shared-device"

    /// The directory of all of Chromium's data.
    let dataDirectory: String
    private let page: String
    private let process: ChildProcess

    /// Why this machine cannot show Chromium, in a few words; `nil` if it can.
    static func reasonToLeaveOut(in directory: String) -> String? {
        guard program != nil else { return "it is not installed (apt-get install chromium)" }
        do throws(ValueFlaw) {
            try AdapterPreset.chromium.check(data: data(in: directory))
            return nil
        } catch {
            return "\(error)"
        }
    }

    /// Starts the adapter. Chromium has to be installed, with a directory that it can use.
    init(bus: PrivateBus, directory: String) throws {
        dataDirectory = Self.data(in: directory)
        page = "\(directory)/page.html"
        process = try ChildProcess(
            ChildProcess.built(Self.adapter),
            [
                "run", "--app", ExampleApp.identifier(Self.name), "--bus", bus.address, "--data", dataDirectory,
                "--preset", "chromium", "--start", "signed-in", "--", Self.program ?? Self.name, "--headless=new",
                // The sandbox does not work for root and in many containers. Here Chromium opens only the
                // demonstration's own page.
                "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
                "file://\(page)",
            ],
            environment: ["XDG_STATE_HOME": "\(directory)/adapter"]
        )
    }

    /// Sends SIGTERM, which ends the adapter and Chromium. A killed adapter would leave Chromium running.
    deinit {
        process.send(SIGTERM)
        process.waitUntilExit()
    }

    private static let program: String? = ["/usr/bin/chromium", "/usr/bin/chromium-browser"]
        .first { access($0, X_OK) == 0 }

    private static func data(in directory: String) -> String { "\(directory)/\(name)" }

    /// Writes the page that Chromium opens at the next sign-in. It stores data of this person in `localStorage` and
    /// IndexedDB.
    func prepare(for person: Person) throws {
        let items = person.markers.map { "“\($0.text)”" }.joined(separator: ", ")
        let text = """
            <meta charset="utf-8"><title>\(person.username)</title><script>
            localStorage.setItem("orders", "\(items)");
            const request = indexedDB.open("orders", 1);
            request.onupgradeneeded = () => request.result.createObjectStore("orders").put("\(items)", 1);
            </script>
            """
        try Files.write(Data(text.utf8), to: page)
    }

    /// Waits until Chromium has written the page's data to the disk.
    func waitUntilStored(_ markers: [Marker]) async throws {
        let search = ByteSearch(markers)
        try await eventually("“Chromium has stored the page's data”", within: .seconds(180)) {
            guard process.isRunning else { throw DemoFailure("Chromium's adapter ended: \(transcript)") }
            let found = try search.run(under: dataDirectory)
            return markers.allSatisfy(found.contains)
        }
    }

    /// Ends the adapter, and with it all processes of Chromium.
    func quit() throws {
        process.send(SIGTERM)
        let status = process.waitUntilExit()
        guard status == 0 else { throw DemoFailure("Chromium's adapter ended with status \(status): \(transcript)") }
    }

    var transcript: String { (process.lines + [process.errorText]).joined(separator: "\n") }
}
