import Foundation

extension SessionPolicy {
    /// The policy as the managed configuration says it. What has another form is taken for absent.
    init(managedConfiguration path: String) {
        self.init()
        guard let data = try? Data(contentsOf: URL(fileURLWithPath: path)),
            let fields = try? JSONSerialization.jsonObject(with: data) as? [String: Any]
        else { return }
        requiresJoin = fields["requiresJoin"] as? Bool ?? false
        tenantIdentifier = fields["tenantIdentifier"] as? String
        schedule.inactivity = (fields["inactivityTimeout"] as? Double).map { .seconds($0) }
        for text in fields["shiftEnds"] as? [String] ?? [] {
            let parts = text.split(separator: ":").compactMap { Int($0) }
            if parts.count == 2 { schedule.shiftEnds.insert(parts[0] * 60 + parts[1]) }
        }
        endsAtScreenLock = fields["signOutOnScreenLock"] as? Bool ?? false
        endsAtLogout = fields["signOutOnLogout"] as? Bool ?? false
        endSessionURL = fields["endSessionURL"] as? String
    }
}
