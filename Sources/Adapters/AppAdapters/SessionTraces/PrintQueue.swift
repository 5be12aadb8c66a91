import FoundationEssentials
import Glibc

/// The user's jobs in the queues of CUPS.
struct PrintQueue: Sendable {
    private static let socket = "/run/cups/cups.sock"

    let user: String
    let tools: SessionTools

    func look() async throws(AdapterFailure) -> TraceFinding {
        if let reason = try await absence() { return .absent(reason) }
        let (waiting, finished) = (try await jobs("not-completed"), try await jobs("completed"))
        return Self.finding(waiting.count, finished.count)
    }

    /// Cancels pending jobs. By CUPS's default policy a user can cancel own pending jobs by name, but cannot remove
    /// finished jobs.
    func cancelJobs() async throws(AdapterFailure) -> TraceFinding {
        if let reason = try await absence() { return .absent(reason) }
        let waiting = try await jobs("not-completed")
        for job in waiting {
            let (status, text) = try await tools.output(of: "cancel", ["-x", job])
            // The command also fails for a job that has finished in the meantime.
            guard status != 0, try await jobs("not-completed").contains(job) else { continue }
            throw AdapterFailure(
                "cancel \(job): \(text.firstLine ?? "cancel ended with status \(status)")",
                remedy: "Let users cancel their own jobs in the policy of the print service (cupsd.conf)"
            )
        }
        let (again, finished) = (try await jobs("not-completed"), try await jobs("completed"))
        guard again.isEmpty else {
            let failure = "remove the print jobs of \(user): \(Self.words(again.count)) arrived during the cleanup"
            throw AdapterFailure(failure, remedy: "End the program that prints before the session ends")
        }
        guard finished.isEmpty else {
            throw AdapterFailure(
                "remove the print jobs of \(user): "
                    + "the print service keeps \(Self.words(finished.count)) that are finished, with their documents",
                remedy:
                    "Write “PreserveJobHistory No” and “PreserveJobFiles No” into cupsd.conf, or leave the step out (--without print-queue)"
            )
        }
        return Self.finding(waiting.count, 0)
    }

    private static func words(_ count: Int) -> String { "\(count) \(count == 1 ? "job" : "jobs")" }

    private static func finding(_ waiting: Int, _ finished: Int) -> TraceFinding {
        let parts = [
            waiting == 0 ? nil : "\(words(waiting)) waiting", finished == 0 ? nil : "\(words(finished)) finished",
        ]
        let text = parts.compactMap(\.self).joined(separator: ", ")
        return text.isEmpty ? .nothing : .traces(text)
    }

    /// The reason why there is no print service to ask; `nil` if one is running.
    private func absence() async throws(AdapterFailure) -> String? {
        guard tools.has("lpstat"), tools.has("cancel") else {
            guard access(Self.socket, F_OK) == 0 else { return "no print service is installed" }
            let remedy = "Install cups-client, or leave the step out (--without print-queue)"
            throw AdapterFailure("ask the print service: lpstat and cancel are not installed", remedy: remedy)
        }
        let (_, text) = try await tools.output(of: "lpstat", ["-r"])
        return text.hasPrefix("scheduler is running") ? nil : "the print service does not run"
    }

    /// The names of the user's jobs, such as `printer-7`.
    private func jobs(_ which: String) async throws(AdapterFailure) -> [String] {
        let (status, text) = try await tools.output(of: "lpstat", ["-W", which, "-u", user])
        // A user without any jobs gets an empty list with status 0.
        guard status == 0 else {
            let reason = text.firstLine
            throw AdapterFailure(
                "list the print jobs of \(user): \(reason ?? "lpstat ended with status \(status)")",
                remedy: "Correct what lpstat reports in the session, or leave the step out (--without print-queue)"
            )
        }
        return text.split(separator: "\n").compactMap { $0.split(separator: " ").first.map(String.init) }
    }
}
