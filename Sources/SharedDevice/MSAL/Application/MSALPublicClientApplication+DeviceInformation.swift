import DBusTransport
import Dispatch
import SharedDevice
import Synchronization

/// What ``MSALPublicClientApplication/getDeviceInformation(with:completionBlock:)`` calls.
public typealias MSALDeviceInformationCompletionBlock = (_ deviceInformation: MSALDeviceInformation?, (any Error)?) ->
    Void

extension MSALPublicClientApplication {
    /// Whether the device is shared. By default the block runs on a queue of the system's choice.
    ///
    /// A device whose broker does not answer, or answers with an error, is never ``MSALDeviceMode/default``: there is an error, and no
    /// information. Where this object was told ``MSALDeviceMode/shared`` before, it says so again, with the error beside it. Overlapping
    /// requests are each answered.
    ///
    /// The error's internal code is ``MSALInternalError/internalBrokerNotAvailable`` where this app is none of the broker's or the broker
    /// does not answer, ``MSALInternalError/internalErrorBrokerUnknown`` where its answer is a failure or makes no sense.
    public func getDeviceInformation(
        with parameters: MSALParameters?,
        completionBlock: @escaping MSALDeviceInformationCompletionBlock
    ) {
        let completion = Completion<DeviceState>(parameters?.completionBlockQueue, default: .global()) {
            completionBlock($0.information, $0.failure?.nsError)
        }
        Task { completion(await deviceState()) }
    }

    /// The same as an async function, under the name that Swift gives MSAL's. Where there is an error it is thrown.
    public func deviceInformation(with parameters: MSALParameters?) async throws -> MSALDeviceInformation {
        let (information, failure) = await deviceState()
        if let failure { throw failure.nsError }
        guard let information else { throw unexplained.nsError }
        return information
    }

    /// The same as ``deviceInformation(with:)``.
    public func getDeviceInformation(with parameters: MSALParameters?) async throws -> MSALDeviceInformation {
        try await deviceInformation(with: parameters)
    }

    private typealias DeviceState = (information: MSALDeviceInformation?, failure: RequestFailure?)

    private func deviceState() async -> DeviceState {
        do throws(RequestFailure) {
            try requireBroker("get the device's information")
        } catch {
            return (nil, error)
        }
        let answer = await shared.getDeviceInformation()
        switch answer.deviceMode {
        case .shared:
            state.withLock { $0.wasShared = true }
            return (MSALDeviceInformation(.shared, answer: answer), nil)
        case .personal:
            state.withLock { $0.wasShared = false }
            return (MSALDeviceInformation(.default, answer: answer), nil)
        case .unknown:
            let remembered = state.withLock { $0.wasShared }
            return (
                remembered ? MSALDeviceInformation(.shared, answer: nil) : nil,
                answer.problem.map { RequestFailure($0) } ?? unexplained
            )
        }
    }

    private var unexplained: RequestFailure {
        RequestFailure(
            .internal(.internalErrorBrokerUnknown),
            "could not get the device's information: the broker names a device mode that this version does not know"
        )
    }
}
