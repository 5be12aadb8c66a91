extension Torture {
    /// Leaves out what the failure does not need.
    ///
    /// - Returns: the failure of the shortest schedule found; `failure` where every step is needed.
    func shrink(_ schedule: Schedule, _ failure: Failure) async -> Failure {
        var (shortest, latest) = (schedule, failure)
        var index = schedule.steps.count - 1
        // From the end: most of what comes after the failure is not needed.
        while index >= 0 {
            let candidate = shortest.without(index)
            if candidate.isSensible, let found = await firstFailure(of: candidate) {
                (shortest, latest) = (candidate, found)
                progress("\(shortest.steps.count) steps are enough: \(found.reason)")
            }
            index -= 1
        }
        return latest
    }

    private func firstFailure(of schedule: Schedule) async -> Failure? {
        for _ in 0..<attempts {
            guard let device = try? await TortureDevice(mutant: mutant) else { return nil }
            if let failure = await carryOut(schedule, on: device, Board()), failure.isViolation { return failure }
        }
        return nil
    }
}
