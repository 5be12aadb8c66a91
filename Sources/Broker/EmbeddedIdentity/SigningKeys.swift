import Basics
import Cryptography
import DeviceStorage
import FoundationEssentials
import Synchronization

/// The keys that sign this device's tokens. They are in the device's database, which only its owner may read, so tokens
/// stay valid after a restart.
///
/// Only tokens depend on them. While a new key cannot be stored or published, the last key goes on signing; without any
/// key, tokens are refused. A problem is reported when it begins and when it ends, and retried after a minute.
final class SigningKeys: Sendable {
    private struct State {
        /// `nil` until the database has been read.
        var ring: SigningKeyRing?
        /// Whether the database contains `ring`.
        var isStored = true
        /// The text that was last published to the services of this device.
        var givenOut: String?
        var failure: (error: StoreError, at: Date)?
    }

    /// The pause after a failure, in seconds.
    static let patience: TimeInterval = 60
    private static let attempted = "keep the keys that tokens are signed with"

    /// The issuer of the tokens: a URN of the directory's UUID (RFC 9562).
    let issuer: String
    private let database: DeviceDatabase
    private let state = Locked(State())
    private let publish: @Sendable (String) throws(StoreError) -> Void
    private let report: @Sendable (String?) -> Void

    /// Reads the keys, and creates the first one.
    ///
    /// - Parameter publish: Publishes the public keys to services of this device, before a token is signed with them.
    init(
        directory: UserDirectory,
        now: Date,
        publish: @escaping @Sendable (String) throws(StoreError) -> Void,
        report: @escaping @Sendable (String?) -> Void
    ) throws(StoreError) {
        database = directory.database
        self.publish = publish
        self.report = report
        let tenant = try database.store(Self.attempted) { try UserDirectory.tenantIdentifier($0) }
        issuer = "urn:uuid:\(tenant.lowercased())"
        tend(at: now)
    }

    /// The public keys as a JWK set that also names the issuer. Never blocks.
    func published(at now: Date) -> String {
        var ring = state.withLock { $0.ring } ?? SigningKeyRing()
        _ = ring.forget(at: now)
        return ring.published(by: issuer)
    }

    /// The current signing key. Blocks as ``tend(at:)`` does, and throws if there is no key and none can be stored.
    func current(at now: Date) throws(StoreError) -> SigningKey {
        tend(at: now)
        let (key, failure) = state.withLock { ($0.ring?.current?.key, $0.failure) }
        if let key { return key }
        throw failure?.error ?? StoreError(.failed, attempted: Self.attempted, message: "there is no key yet")
    }

    /// Removes expired keys, creates the next key when it is due, and publishes changes. One call at a time. Only then
    /// it blocks its thread for the database and for `publish`.
    func tend(at now: Date) {
        var next = state.withLock { $0 }
        if let failure = next.failure, (0..<Self.patience).contains(now.timeIntervalSince(failure.at)) { return }
        let was = next.failure?.error
        do throws(StoreError) {
            try tend(&next, at: now)
            next.failure = nil
        } catch {
            next.failure = (error, now)
        }
        state.withLock { $0 = next }
        if was != next.failure?.error { report(next.failure?.error.description) }
    }

    private func tend(_ state: inout State, at now: Date) throws(StoreError) {
        var ring = if let known = state.ring { known } else { try load(&state) }
        if ring.forget(at: now) { state.isStored = false }
        state.ring = ring
        if !ring.signs(at: now) {
            let renewed = ring.renewed(at: now)
            // Services must have the new key before they see a token signed with it. Without a current key this does
            // not matter: a token that only some services can verify is better than none.
            if ring.current != nil { try giveOut(renewed, &state) }
            try store(renewed)
            ring = renewed
            (state.ring, state.isStored) = (ring, true)
        }
        if state.givenOut != ring.published(by: issuer) { try giveOut(ring, &state) }
        if !state.isStored {
            try store(ring)
            state.isStored = true
        }
    }

    private func load(_ state: inout State) throws(StoreError) -> SigningKeyRing {
        let (ring, flaws) = try database.read("read the keys that tokens are signed with", SigningKeyRing.read)
        if flaws > 0 {
            state.isStored = false
            let effect = "which are removed; tokens that they have signed are no longer valid"
            report("the database has damaged keys (\(flaws)), \(effect)")
        }
        return ring
    }

    private func giveOut(_ ring: SigningKeyRing, _ state: inout State) throws(StoreError) {
        let text = ring.published(by: issuer)
        try publish(text)
        state.givenOut = text
    }

    /// Replaces the stored keys, and erases the secret half of a retired key.
    private func store(_ ring: SigningKeyRing) throws(StoreError) {
        try database.store(Self.attempted) { try ring.store($0) }
        database.eraseRemnants()
    }
}
