import ArgumentParser
import ExampleSupport

@main
struct FieldServiceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "field-service",
        abstract: "A technician's work list on a shared device: jobs, photos and what is to be sent.",
        discussion: "Takes commands on standard input, one a line:\n\(Command.overview)"
    )

    @OptionGroup var options: AppOptions

    func run() async throws {
        let app = options.app(name: "field-service", title: "Field service")
        try await app.run { FieldServiceWorkspace(directory: $0) }
    }
}
