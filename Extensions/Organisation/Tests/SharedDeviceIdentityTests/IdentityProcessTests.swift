import DBus
import FoundationEssentials
import Glibc
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

@Suite("The identity service process")
struct IdentityProcessTests {
    private let start = SignInStart(.browser, redirect: testRedirect)

    @Test("Ada signs in over the bus, her record renews and ends; a code is cancelled")
    func whole() async throws {
        let device = try await IdentityDevice(fault: "process")
        let signIn = try await device.signIn()
        #expect(signIn.account.username == "ada@example.com")
        #expect(signIn.record.session == "session-1" && signIn.token.scopes == ["openid", "profile"])
        let (token, record) = try await device.provider.renewed(signIn.record)
        #expect(token.value != signIn.token.value)
        try await device.provider.end(record)
        #expect(try await device.test.page("ended").hasPrefix(allEnded))
        #expect(await device.provider.renew(record).kind == .sessionOver)
        let error = await #expect(throws: IdentityError.self) { try await device.provider.complete("a", query: "b") }
        #expect(error?.code == .loginExpired)
        let begun = try await device.provider.begin(SignInStart(.deviceCode))
        guard case .deviceCode("WDJB-MJHT", _, _?) = begun.prompt else { throw NoAddress() }
        #expect(try await device.provider.poll(begun.handle) == nil)
        await device.provider.cancel(begun.handle)
        let cancelled = await #expect(throws: IdentityError.self) { try await device.provider.poll(begun.handle) }
        #expect(cancelled?.code == .loginExpired)
    }

    @Test("the process ends with the bus that started it, or else waits for the next bus")
    func endOfTheBus() async throws {
        let device = try await IdentityDevice(fault: "none")
        let bus = try PrivateBus()
        let environment = ["DBUS_STARTER_ADDRESS": bus.address + ",guid=0123"]
        let started = try await IdentityDevice.start(bus, device.directory, environment: environment)
        bus.stop()
        #expect(await started.exitStatus() == EX_UNAVAILABLE)
        #expect(started.errorText.contains("the bus that has started this program is gone"))
        let other = try PrivateBus()
        // As in a terminal that the first bus has started.
        let lasting = try await IdentityDevice.start(other, device.directory, environment: environment)
        try other.restart()
        let connection = try DBusConnection.open(other.bus)
        try await eventually("it has its name again") {
            try await connection.owner(of: IdentityProtocol.busName) != nil
        }
        #expect(lasting.isRunning)
    }

    @Test("a stranger is refused, and a broker that gave up its name leaves its places free")
    func strangers() async throws {
        let device = try await IdentityDevice(fault: "none")
        let stranger = try DBusConnection.open(device.bus.bus)
        for method in IdentityProtocol.Method.allCases {
            let error = await #expect(throws: DBusError.self) {
                try await device.call(method.rawValue, start.fields, on: stranger)
            }
            #expect(error?.name == "org.freedesktop.DBus.Error.AccessDenied", "\(method)")
        }
        for _ in 0..<8 { _ = try await device.provider.begin(start) }
        let error = await #expect(throws: IdentityError.self) { try await device.provider.begin(start) }
        #expect(error?.code == .busy)
        try await device.broker.releaseName(BrokerProtocol.busName)
        let refusal = await #expect(throws: IdentityError.self) { try await device.provider.begin(start) }
        #expect(refusal?.code != .busy, "it is refused for its name, not for lack of a place")
        // The new owner of the broker's name is answered at once, and so is the earlier one when it has the name again.
        try await stranger.requestName(BrokerProtocol.busName)
        _ = try await device.call("BeginSignIn", start.fields, on: stranger)
        try await stranger.releaseName(BrokerProtocol.busName)
        try await device.broker.requestName(BrokerProtocol.busName)
        for _ in 0..<8 { _ = try await device.provider.begin(start) }
    }

    @Test("malformed or oversized requests are refused by name, and the process goes on")
    func malformed() async throws {
        let device = try await IdentityDevice(fault: "none")
        let record = ProviderRecord(
            person: .init(issuer: "i", subject: "s"),
            session: nil,
            content: Secret(bytes: [UInt8](repeating: 0x20, count: ProviderRecord.longestContent + 1))
        )
        for (method, fields) in [
            ("BeginSignIn", [:]), ("BeginSignIn", ["method": .string("password")]),
            ("BeginSignIn", ["method": .boolean(true), "scopes": .boolean(true)]),
            ("CompleteSignIn", ["handle": .string("a"), "query": .string(String(repeating: "q", count: 20_000))]),
            ("Renew", ["record": .fields(record.fields)]),
            ("Renew", ["record": .bytes([UInt8](repeating: 0, count: 200_000))]),
            ("EndSession", ["record": .string("r")]),
        ] as [(String, IdentityFields)] {
            let error = await #expect(throws: DBusError.self) {
                try await device.call(method, fields, on: device.broker)
            }
            let name = error?.name ?? ""
            #expect(
                name == IdentityProtocol.errorPrefix + "server_error" || name.hasSuffix("LimitsExceeded"),
                "\(name)"
            )
        }
        _ = try await device.provider.begin(start)
    }

    @Test("a hanging provider delays no other call, and excess calls are refused")
    func hangs() async throws { try await withTaskExecutorPreference(OwnThread()) { try await judgeHanging() } }

    private func judgeHanging() async throws {
        let listener = try SilentServer()
        let device = try await IdentityDevice(issuer: "http://127.0.0.1:\(listener.port)/")
        let begin = ContinuousClock.now
        let errors = await withTaskGroup(of: IdentityError?.self, returning: [IdentityError].self) { group in
            for _ in 0..<60 {
                group.addTask {
                    do throws(IdentityError) {
                        _ = try await device.provider.begin(start)
                        return nil
                    } catch {
                        return error
                    }
                }
            }
            group.addTask {
                await device.provider.cancel("a")
                #expect(ContinuousClock.now - begin < .seconds(8))
                return nil
            }
            var (errors, isOtherDone) = ([IdentityError](), false)
            for await error in group {
                if let error { errors.append(error) } else { isOtherDone = true }
                // Eight requests wait for the provider. The others are refused at once.
                if errors.count >= 50, isOtherDone { listener.stop() }
            }
            return errors
        }
        #expect(errors.count == 60)
        #expect(errors.count { $0.description.contains("cannot be reached") } >= 1)
        #expect(errors.count { $0.code == .busy || $0.description.contains("LimitsExceeded") } >= 50)
        #expect(ContinuousClock.now - begin < .seconds(40))
    }

    @Test("after a kill during a refresh the broker learns that the token may be used up")
    func killed() async throws {
        let device = try await IdentityDevice(fault: "refresh-hang")
        let record = try await device.signIn().record
        async let outcome = device.provider.renew(record)
        try await eventually("the refresh at the provider") { try await device.test.page("away") == "True" }
        device.process.kill()
        let killed = await outcome
        #expect(killed.kind == .unavailable(mayBeUsed: true) && killed.outage?.code == .providerUnavailable)
        // Without the process no request is sent, so the token stays unused.
        #expect(await device.provider.renew(record).kind == .unavailable(mayBeUsed: false))
        let next = try await IdentityDevice.start(device.bus, device.directory)
        _ = try await device.provider.begin(start)
        withExtendedLifetime(next) {}
    }

    @Test("a response of 1 GiB fills no memory, and Retry-After reaches the broker")
    func answers() async throws {
        for (fault, mayBeUsed, retryAfter) in [
            ("refresh-large", true, nil), ("refresh-busy", false, .seconds(120)),
        ] as [(String, Bool, Duration?)] {
            let device = try await IdentityDevice(fault: fault)
            let record = try await device.signIn().record
            let outcome = await device.provider.renew(record)
            #expect(outcome.kind == .unavailable(mayBeUsed: mayBeUsed), "\(fault)")
            #expect(outcome.outage?.code == .providerUnavailable && outcome.outage?.retryAfter == retryAfter)
            #expect(try device.process.memory().peak < 128 << 20)
            // The process still works.
            _ = try await device.provider.begin(start)
        }
    }

    @Test(
        "the bus starts the process on a call of the broker",
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "without systemd, dbus-broker starts no services")
    )
    func activation() async throws {
        let faulty = try await FaultyProvider.shared.value
        let directory = try TemporaryDirectory("shared-device-identity")
        try IdentityDevice.configure(directory.path, issuer: faulty.issuer("none"), trustAnchors: faulty.trustAnchors)
        let program = ChildProcess.built("shared-device-identity")
        let command = "\(program) --configuration \(directory.path)/managed-configuration.json"
        let bus = try PrivateBus(.init(services: [IdentityProtocol.busName: command]))
        let broker = try DBusConnection.open(bus.bus)
        try await broker.requestName(BrokerProtocol.busName)
        let begun = try await RemoteProvider(connection: broker).begin(start)
        #expect(begun.lifetime == .seconds(600))
    }

    @Test("a missing provider and process are named; a later provider is used at once")
    func configuration() async throws {
        let device = try await IdentityDevice(issuer: nil)
        let error = await #expect(throws: IdentityError.self) { try await device.provider.begin(start) }
        #expect(error?.code == .providerMisconfigured && error?.description.contains("oidcIssuer") == true)
        let none = try await ProviderCheckTests.run(device)
        #expect(none.status == 78 && none.output.contains("oidcIssuer"), "\(none.output)")
        // A provider that is configured later is used at once.
        try await device.configure()
        try await eventually("the provider") { (try? await device.provider.begin(start)) != nil }
        device.process.kill()
        device.process.waitUntilExit()
        let gone = try await ProviderCheckTests.run(device)
        #expect(gone.status == 69 && gone.output.contains("shared-device-identity"), "\(gone.output)")
    }

    @Test(
        "on a system bus only root and the broker's user may call the process",
        .enabled(if: geteuid() == 0, "only root can be several users")
    )
    func severalUsers() async throws {
        let faulty = try await FaultyProvider.shared.value
        // Users that exist on each system: daemon and bin.
        let (own, stranger): (UInt32, UInt32) = (1, 2)
        let policies = ["org.notifycenter.SharedDevice1.conf", "org.notifycenter.SharedDeviceIdentity1.conf"]
        let standIns = ["shared-device": "root", "shared-device-identity": "daemon"]
        let bus = try PrivateBus(.likeSystemBus(policies: policies, standIns: standIns))
        let directory = try TemporaryDirectory("shared-device-identity")
        chmod(directory.path, 0o755)
        let file = directory.path + "/managed-configuration.json"
        try IdentityDevice.configure(directory.path, issuer: faulty.issuer("none"))
        let broker = try DBusConnection.open(bus.bus)
        try await broker.requestName(BrokerProtocol.busName)
        let program = ChildProcess.built("shared-device-identity")
        let arguments = ["--bus", bus.address, "--configuration", file]
        // The bus policy refuses the name to another user.
        let impostor = try ChildProcess(as: stranger, program, arguments)
        #expect(await impostor.exitStatus() == 69)
        let process = try ChildProcess(as: own, program, arguments)
        _ = try await process.line { $0 == "ready" }
        let check = ["provider", "check", "--bus", bus.address]
        let refused = try ChildProcess(as: stranger, ChildProcess.built("shared-device"), check)
        #expect(await refused.exitStatus() == 69)
        #expect(refused.errorText.contains("AccessDenied"), "\(refused.errorText)")
        // Root may run the check. The test's certificate authority is not trusted by the system, so the check fails.
        let checked = try ChildProcess(ChildProcess.built("shared-device"), check)
        #expect(await checked.exitStatus() == 1)
        let error = await #expect(throws: IdentityError.self) {
            try await RemoteProvider(connection: broker).begin(start)
        }
        #expect(error?.code == .providerUnavailable && error?.description.contains("oidcTrustAnchors") == true)
    }

    @Test("an unusable credential and a missing bus have distinct exit statuses")
    func exits() async throws {
        let directory = try TemporaryDirectory("shared-device-identity")
        let program = ChildProcess.built("shared-device-identity")
        let file = directory.path + "/managed-configuration.json"
        try String(repeating: "s", count: 5000)
            .write(toFile: directory.path + "/oidc-client-secret", atomically: true, encoding: .utf8)
        let large = try ChildProcess(
            program,
            ["--bus", "unix:path=/nowhere", "--configuration", file],
            environment: ["CREDENTIALS_DIRECTORY": directory.path]
        )
        #expect(await large.exitStatus() == 78)
        let noBus = try ChildProcess(program, ["--bus", "unix:path=/nowhere", "--configuration", file])
        #expect(await noBus.exitStatus() == 69)
        let version = try ChildProcess(program, ["--version"])
        #expect(await version.exitStatus() == 0 && version.lines.first?.hasPrefix("shared-device-identity ") == true)
    }
}
