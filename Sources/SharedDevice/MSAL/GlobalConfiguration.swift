import DBusTransport
public import Foundation
import Synchronization

/// Settings of the whole process.
public final class MSALGlobalConfig: Sendable {
    private struct Settings {
        var brokerAvailability = MSALBrokeredAvailability.auto
        var defaultWebviewType = MSALWebviewType.default
    }

    private static let settings = Locked(Settings())

    private init() {}

    /// What is logged. Nothing is: see ``MSALLoggerConfig``.
    public static let loggerConfig = MSALLoggerConfig()

    /// How requests travel. Nothing travels: see ``MSALHTTPConfig``.
    public static let httpConfig = MSALHTTPConfig()

    /// What the app wants to know of its requests. Nothing is counted: see ``MSALTelemetryConfig``.
    public static let telemetryConfig = MSALTelemetryConfig()

    /// Whether apps of this process use the broker. With ``MSALBrokeredAvailability/none`` every request fails with
    /// ``MSALInternalError/internalBrokerNotAvailable``: MSAL signs in for the app alone then, and here only the broker can sign in.
    public static var brokerAvailability: MSALBrokeredAvailability {
        get { settings.withLock { $0.brokerAvailability } }
        set { settings.withLock { $0.brokerAvailability = newValue } }
    }

    /// The kind of web view that ``MSALWebviewParameters`` begin with. It changes nothing: there is no web view.
    public static var defaultWebviewType: MSALWebviewType {
        get { settings.withLock { $0.defaultWebviewType } }
        set { settings.withLock { $0.defaultWebviewType = newValue } }
    }
}

/// Whether requests go through the broker.
public enum MSALBrokeredAvailability: Int, Sendable {
    /// They do.
    case auto = 0
    /// They do not.
    case none
}

/// The kind of web view in which a person signs in. No value changes anything here: there is no web view.
public enum MSALWebviewType: Int, Sendable {
    /// The system's choice.
    case `default` = 0
    /// A session of the system's browser.
    case authenticationSession
    /// Safari within the app.
    case safariViewController
    /// A web view of the app.
    case wkWebView
}

/// What the app wants to read in its log.
///
/// This module writes no log, so that no setting here changes anything and no callback is ever called. Each failed request says in its error
/// what happened, under ``MSALErrorDescriptionKey``; what the broker decides is in the broker's log.
public final class MSALLoggerConfig: Sendable {
    private struct Settings {
        var logLevel = MSALLogLevel.error
        var piiEnabled = false
        var logMaskingLevel = MSALLogMaskingLevel.settingsMaskAllPII
    }

    private let settings = Locked(Settings())

    fileprivate init() {}

    /// The least important message that the app wants. Changes nothing.
    public var logLevel: MSALLogLevel {
        get { settings.withLock { $0.logLevel } }
        set { settings.withLock { $0.logLevel = newValue } }
    }

    /// Whether the app wants messages that name persons. Changes nothing.
    public var piiEnabled: Bool {
        get { settings.withLock { $0.piiEnabled } }
        set { settings.withLock { $0.piiEnabled = newValue } }
    }

    /// What is left out of messages. Changes nothing.
    public var logMaskingLevel: MSALLogMaskingLevel {
        get { settings.withLock { $0.logMaskingLevel } }
        set { settings.withLock { $0.logMaskingLevel = newValue } }
    }

    /// Does nothing: `callback` is not kept and never called.
    public func setLogCallback(_ callback: @escaping MSALLogCallback) {}
}

/// What MSAL hands to a log callback.
public typealias MSALLogCallback = (_ level: MSALLogLevel, _ message: String?, _ containsPII: Bool) -> Void

/// How important a message is.
public enum MSALLogLevel: Int, Sendable {
    /// No messages.
    case nothing = 0
    /// Errors.
    case error
    /// Errors and warnings.
    case warning
    /// Also calls of the library.
    case info
    /// Everything.
    case verbose

    /// ``verbose``.
    public static let last = MSALLogLevel.verbose
}

/// What is left out of log messages.
public enum MSALLogMaskingLevel: Int, Sendable {
    /// Everything about persons and organisations.
    case settingsMaskAllPII = 0
    /// What identifies a person.
    case settingsMaskEUIIOnly
    /// Secrets alone.
    case settingsMaskSecretsOnly
}

// MARK: Network and telemetry

/// How requests travel to the token service.
///
/// This module speaks to the broker alone, on the device's bus, so that no setting here changes anything.
public final class MSALHTTPConfig: Sendable {
    private struct Settings {
        var retryCount = 1
        var retryInterval = 0.5
        var timeoutIntervalForRequest = 300.0
        var timeoutIntervalForResource = 300.0
    }

    private let settings = Locked(Settings())

    fileprivate init() {}

    /// How often a failed request is repeated. Changes nothing.
    public var retryCount: Int {
        get { settings.withLock { $0.retryCount } }
        set { settings.withLock { $0.retryCount = newValue } }
    }

    /// The time before a request is repeated. Changes nothing.
    public var retryInterval: TimeInterval {
        get { settings.withLock { $0.retryInterval } }
        set { settings.withLock { $0.retryInterval = newValue } }
    }

    /// How long a request waits for data. Changes nothing.
    public var timeoutIntervalForRequest: TimeInterval {
        get { settings.withLock { $0.timeoutIntervalForRequest } }
        set { settings.withLock { $0.timeoutIntervalForRequest = newValue } }
    }

    /// How long a request may take in all. Changes nothing.
    public var timeoutIntervalForResource: TimeInterval {
        get { settings.withLock { $0.timeoutIntervalForResource } }
        set { settings.withLock { $0.timeoutIntervalForResource = newValue } }
    }
}

/// What the app wants to know of its requests.
///
/// This module counts nothing, so that no setting here changes anything and no callback is ever called.
public final class MSALTelemetryConfig: Sendable {
    private struct Settings {
        var piiEnabled = false
        var notifyOnFailureOnly = false
        var aggregationRequired = false
    }

    private let settings = Locked(Settings())

    fileprivate init() {}

    /// Whether the app wants events that name persons. Changes nothing.
    public var piiEnabled: Bool {
        get { settings.withLock { $0.piiEnabled } }
        set { settings.withLock { $0.piiEnabled = newValue } }
    }

    /// Whether the app wants events of failed requests alone. Changes nothing.
    public var notifyOnFailureOnly: Bool {
        get { settings.withLock { $0.notifyOnFailureOnly } }
        set { settings.withLock { $0.notifyOnFailureOnly = newValue } }
    }

    /// Whether the app wants one event for each request. Changes nothing.
    public var aggregationRequired: Bool {
        get { settings.withLock { $0.aggregationRequired } }
        set { settings.withLock { $0.aggregationRequired = newValue } }
    }

    /// What the app wants called. Changes nothing: it is not kept, and reads as `nil`.
    public var telemetryCallback: MSALTelemetryCallback? {
        get { nil }
        set {}
    }
}

/// What MSAL hands to a telemetry callback.
public typealias MSALTelemetryCallback = (_ event: [String: String]) -> Void
