import Dispatch

/// The requests with completion blocks, spelled as in MSAL for iOS. Each block is called once, on the queue that the
/// parameters name.
extension SharedDeviceApplication {
    /// Gets the device's information. If the broker does not respond, the block gets both an error and information, in
    /// which the mode is unknown. By default the block runs on a queue of the system's choice.
    public func getDeviceInformation(
        with parameters: SharedDeviceParameters?,
        completionBlock: @escaping @Sendable (DeviceInformation?, SharedDeviceError?) -> Void
    ) {
        complete(on: parameters?.completionBlockQueue ?? .global()) { application in
            let information = await application.getDeviceInformation()
            return { completionBlock(information, information.problem) }
        }
    }

    /// Gets the current account and the previously reported one. By default the block runs on a queue of the system's
    /// choice.
    public func getCurrentAccount(
        with parameters: SharedDeviceParameters?,
        completionBlock: @escaping @Sendable (_ current: Account?, _ previous: Account?, SharedDeviceError?) -> Void
    ) {
        complete(on: parameters?.completionBlockQueue ?? .global()) { application in
            do throws(SharedDeviceError) {
                let accounts = try await application.getCurrentAccount()
                return { completionBlock(accounts.current, accounts.previous, nil) }
            } catch {
                return { completionBlock(nil, nil, error) }
            }
        }
    }

    /// Signs a person in for the whole device. By default the block runs on the main queue.
    public func acquireToken(
        with parameters: InteractiveTokenParameters,
        completionBlock: @escaping @Sendable (TokenResult?, SharedDeviceError?) -> Void
    ) {
        complete(on: parameters.completionBlockQueue ?? .main) { application in
            do throws(SharedDeviceError) {
                let token = try await application.acquireToken(with: parameters)
                return { completionBlock(token, nil) }
            } catch {
                return { completionBlock(nil, error) }
            }
        }
    }

    /// Gets a token without a prompt. By default the block runs on a queue of the system's choice.
    public func acquireTokenSilent(
        with parameters: SilentTokenParameters,
        completionBlock: @escaping @Sendable (TokenResult?, SharedDeviceError?) -> Void
    ) {
        complete(on: parameters.completionBlockQueue ?? .global()) { application in
            do throws(SharedDeviceError) {
                let token = try await application.acquireTokenSilent(with: parameters)
                return { completionBlock(token, nil) }
            } catch {
                return { completionBlock(nil, error) }
            }
        }
    }

    /// Signs the account out for the whole device. By default the block runs on the main queue.
    public func signout(
        with account: Account,
        signoutParameters: SignoutParameters,
        completionBlock: @escaping @Sendable (_ success: Bool, SharedDeviceError?) -> Void
    ) {
        complete(on: signoutParameters.completionBlockQueue ?? .main) { application in
            do throws(SharedDeviceError) {
                try await application.signout(with: account, signoutParameters: signoutParameters)
                return { completionBlock(true, nil) }
            } catch {
                return { completionBlock(false, error) }
            }
        }
    }

    private func complete(
        on queue: DispatchQueue,
        _ request: @escaping @Sendable (SharedDeviceApplication) async -> @Sendable () -> Void
    ) {
        Task {
            let block = await request(self)
            queue.async(execute: block)
        }
    }
}
