import ArgumentParser
import Basics
import CommandParts
import DBus
import DeviceConfiguration
import Dispatch
import FoundationEssentials
import Glibc
import SharedDevice
import Synchronization

/// Lets a program in any language take part: a shell script, or any program that reads lines.
struct FollowCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "follow",
        abstract: "Follows the account of the device for an app in any language: a line of JSON for each state.",
        discussion: """
            Standard output has one JSON object on each line: {"state":"hidden","reason":…,"message":…}, {"state":"nobody"} or \
            {"account":{…},"state":"open"}. Show and store a user's data between "open" and the next line only.

            The data of people who signed out is deleted by COMMAND (--cleanup), a line of the shell. It is run once for each of \
            them, with SHARED_DEVICE_ACCOUNT, SHARED_DEVICE_USERNAME and SHARED_DEVICE_FOLDER (the account as the name of a \
            folder) in its environment. Exit status 0 is the receipt: the data is gone. Another one, or none within --timeout, is \
            a failure, after which it is run again, at first at once and later after up to a minute. A second run must do no harm.

            Without --cleanup, the reader of the lines deletes the data. It responds to {"accounts":[…],"number":7,"state":"cleanup","step":…} \
            on standard input with {"done":7} or {"failed":7,"reason":"…"}. It may also write {"activity":true} there whenever a \
            person uses the app, so that the device does not sign the person out for inactivity.

            Before the session ends by itself, --ending runs its COMMAND, a line of the shell, with SHARED_DEVICE_END_REASON \
            (inactivity, shiftEnd, longestSession or lock), SHARED_DEVICE_END_LOCKS (“yes” if the screen is locked instead of the \
            sign-out), SHARED_DEVICE_ENDS_AT (seconds since 1970), SHARED_DEVICE_ENDS_IN (seconds), SHARED_DEVICE_END_NOTICE (a \
            sentence for the person) and SHARED_DEVICE_END_STAY (“Stay signed in”, empty if the person cannot stay) in its \
            environment. Both texts are in the language of the locale. It is ended when the warning is over. If \
            its last line is “stay”, the person is active, which moves the end after inactivity: notify-send --wait --action=stay=… \
            writes that line.

            It ends with 0 when its standard input ends (with --cleanup: when the pipe is closed) and after SIGTERM or SIGINT, \
            and with 74 when its output is not read. Whatever ends it, the app still owes its cleanups: the next start cleans up \
            before it shows anything.
            """
    )

    @Option(help: ArgumentHelp("The app's identifier, for instance org.example.notes.", valueName: "identifier"))
    var app: String

    @Option(help: ArgumentHelp("Deletes the data of one person; a line of the shell.", valueName: "command"))
    var cleanup: String?

    @Option(
        help: ArgumentHelp(
            "A step that the reader of the output carries out; may be repeated.",
            discussion: "A step that is done is not asked for again after a crash of a later one. Default: data.",
            valueName: "name"
        )
    )
    var step: [String] = []

    @Option(
        help: ArgumentHelp("How many seconds the cleanup of one person, or a step, may take.", valueName: "seconds")
    )
    var timeout = 60.0

    @Option(
        help: ArgumentHelp(
            "Warns the person before the session ends by itself; a line of the shell.",
            valueName: "command"
        )
    )
    var ending: String?

    @Option(
        help: ArgumentHelp(
            "Where the record is kept of whose data the app may hold.",
            discussion: "By default the identifier in $XDG_STATE_HOME or ~/.local/state. It must outlast the data.",
            valueName: "dir"
        )
    )
    var record: String?

    @Option(help: ArgumentHelp("A name to own on the bus, by which the bus can start the app.", valueName: "name"))
    var busName: String?

    @OptionGroup var bus: BusOptions

    func validate() throws {
        // The identifier is also used as the name of a folder.
        guard AppIdentifier.isPlausible(app), !app.contains("/"), !app.hasPrefix(".") else {
            throw ValidationError("--app needs an identifier such as org.example.notes")
        }
        guard timeout > 0, timeout <= 86_400 else {
            throw ValidationError("--timeout needs a number of seconds, up to 86400")
        }
        guard cleanup == nil || step.isEmpty else {
            throw ValidationError("--step is for a reader that responds on standard input; leave it out with --cleanup")
        }
        guard record?.isEmpty != true, cleanup?.isEmpty != true, ending?.isEmpty != true else {
            throw ValidationError("--record, --cleanup and --ending must not be empty")
        }
    }

    func execute() throws {
        // A closed pipe becomes an error of the write.
        signal(SIGPIPE, SIG_IGN)
        let (ends, continuation) = AsyncStream.makeStream(of: Void.self)
        let end: @Sendable () -> Void = { continuation.yield() }
        let signals = try EndSignals([SIGTERM, SIGINT, SIGHUP])
        let output = FollowOutput(onFailure: end)
        let application = SharedDeviceApplication(
            identifier: app,
            bus: bus.bus,
            busName: busName,
            stateDirectory: record
        )
        let coordinator = CleanupCoordinator(stateDirectory: nil, options: .init())
        if let cleanup {
            let program = CleanupProgram(
                command: cleanup,
                timeout: .seconds(timeout),
                lock: "\(application.stateDirectory)/shared-device-follow.lock"
            )
            try coordinator.register("the cleanup command") { try await program.run(for: $0.accounts) }
        } else {
            let answers = FollowAnswers(
                output: output,
                timeout: .seconds(timeout),
                onActivity: { application.noteActivity() },
                onEnd: end
            )
            for name in step.isEmpty ? ["data"] : step {
                try coordinator.register(name) { try await answers.ask(name, $0.accounts) }
            }
            answers.read(STDIN_FILENO)
        }
        output.watch(input: cleanup == nil ? nil : STDIN_FILENO, onEnd: end)
        Task {
            await signals.first()
            end()
        }
        let program = ending.map { EndingProgram(command: $0, application: application) }
        let following = Task {
            defer { continuation.finish() }
            async let warnings: Void? = program?.run()
            await application.follow(coordinator) { try await output.show($0) }
            await warnings
        }
        try OtherThreads.run {
            _ = await ends.first { true }
            // The loop first finishes a cleanup in progress.
            following.cancel()
            await following.value
        }
        if let failure = output.failure { throw failure }
    }
}
