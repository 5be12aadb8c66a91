import DBusTransport
import DeviceStorage
import EmbeddedDirectory
import FoundationEssentials
import JSONWebSignature
import StrictJSON
import Synchronization

/// The keys that this device signs its tokens with, in the device's database, which its owner alone may read: so tokens count on over a restart.
///
/// They are no condition of anything but tokens. While a new key cannot be stored or given out, the last one signs on; where there is none, tokens
/// are refused. What is wrong is reported when it begins and when it ends, and tried again after a minute.
final class SigningKeys: Sendable {
    private struct State {
        /// `nil` while the database could not be read.
        var ring: SigningKeyRing?
        /// Whether the database has it.
        var isStored = true
        /// What services of this device can read.
        var givenOut: String?
        var failure: (error: StoreError, at: Date)?
    }

    /// How long after a failure nothing is tried, in seconds.
    static let patience: TimeInterval = 60
    private static let attempted = "keep the keys that tokens are signed with"

    /// Who signs, as tokens name it: a URN of the directory's own number (RFC 9562).
    let issuer: String
    private let database: DeviceDatabase
    private let state = Locked(State())
    private let publish: @Sendable (String) throws(StoreError) -> Void
    private let report: @Sendable (String?) -> Void

    /// Reads the keys, and makes the first one.
    ///
    /// - Parameters:
    ///   - publish: gives services of this device what they may read, before a token needs it.
    ///   - report: told what is wrong with the keys, and `nil` when nothing is any more.
    /// - Throws: ``StoreError`` where the database cannot tell the directory's number.
    init(
        directory: UserDirectory,
        now: Date,
        publish: @escaping @Sendable (String) throws(StoreError) -> Void,
        report: @escaping @Sendable (String?) -> Void
    ) throws(StoreError) {
        database = directory.database
        self.publish = publish
        self.report = report
        let tenant: String
        do {
            tenant = try database.write(Self.attempted) { try UserDirectory.tenantIdentifier($0) }
        } catch {
            throw StoreError(error, attempted: Self.attempted, path: database.path)
        }
        issuer = "urn:uuid:\(tenant.lowercased())"
        tend(at: now)
    }

    /// The public halves, as a JWK set that also names the issuer. Never blocks.
    func published(at now: Date) -> String {
        var ring = state.withLock { $0.ring } ?? SigningKeyRing()
        _ = ring.forget(at: now)
        return ring.published(by: issuer)
    }

    /// The key that signs now. Blocks its thread as ``tend(at:)`` does.
    ///
    /// - Throws: ``StoreError`` where there is none, and none can be stored.
    func current(at now: Date) throws(StoreError) -> SigningKey {
        tend(at: now)
        let (key, failure) = state.withLock { ($0.ring?.current?.key, $0.failure) }
        if let key { return key }
        throw failure?.error ?? StoreError(.failed, attempted: Self.attempted, message: "there is no key yet")
    }

    /// Forgets keys that are over, makes the next when it is due, and gives out what has changed. One call at a time.
    ///
    /// It blocks its thread where there is something to do, for the database and for whom it publishes to.
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
            // Services have the new key before they see a token of it. Where none signs, a token that only some can check is better than none.
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
        let (ring, flaws) = try database.read("read the keys that tokens are signed with") {
            try SigningKeyRing.read($0)
        }
        if flaws > 0 {
            state.isStored = false
            report(
                "the database has damaged ones (\(flaws)), which are removed; tokens that they have signed count no more"
            )
        }
        return ring
    }

    private func giveOut(_ ring: SigningKeyRing, _ state: inout State) throws(StoreError) {
        let text = ring.published(by: issuer)
        try publish(text)
        state.givenOut = text
    }

    /// In the place of those that are there; the secret half of a key that signs no more is erased.
    private func store(_ ring: SigningKeyRing) throws(StoreError) {
        do {
            try database.write(Self.attempted) { try ring.store($0) }
        } catch {
            throw StoreError(error, attempted: Self.attempted, path: database.path)
        }
        database.eraseRemnants()
    }
}
