import Basics
import DBus
public import Foundation
import Synchronization

/// Settings for the whole process. Any thread may read and change them.
public final class MSALGlobalConfig: Sendable {
    private static let settings = Locked(
        (brokerAvailability: MSALBrokeredAvailability.auto, webview: MSALWebviewType.default)
    )

    private init() {}

    /// Log settings. Nothing is logged: see ``MSALLoggerConfig``.
    public static let loggerConfig = MSALLoggerConfig()

    /// Network settings. Nothing is sent over HTTP: see ``MSALHTTPConfig``.
    public static let httpConfig = MSALHTTPConfig()

    /// Telemetry settings. Nothing is counted: see ``MSALTelemetryConfig``.
    public static let telemetryConfig = MSALTelemetryConfig()

    /// Whether apps of this process use the broker. With ``MSALBrokeredAvailability/none`` every request fails with
    /// ``MSALInternalError/internalBrokerNotAvailable``: MSAL then signs in for the app alone, but here only the broker
    /// can sign in.
    public static var brokerAvailability: MSALBrokeredAvailability {
        get { settings.withLock { $0.brokerAvailability } }
        set { settings.withLock { $0.brokerAvailability = newValue } }
    }

    /// The initial kind of web view of ``MSALWebviewParameters``. It changes nothing: there is no web view.
    public static var defaultWebviewType: MSALWebviewType {
        get { settings.withLock { $0.webview } }
        set { settings.withLock { $0.webview = newValue } }
    }
}

/// Whether requests go through the broker.
public enum MSALBrokeredAvailability: Int, Sendable {
    /// Requests go through the broker.
    case auto = 0
    /// Requests do not go through the broker, so all of them fail.
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

/// Log settings.
///
/// This module writes no log: no setting here changes anything, and no callback is ever called. The error of a failed
/// request says what happened, under ``MSALErrorDescriptionKey``. The broker's decisions are in the broker's log.
public final class MSALLoggerConfig: Sendable {
    private let settings = Locked(
        (logLevel: MSALLogLevel.error, piiEnabled: false, logMaskingLevel: MSALLogMaskingLevel.settingsMaskAllPII)
    )

    fileprivate init() {}

    /// The least important message that the app wants. Changes nothing.
    public var logLevel: MSALLogLevel {
        get { settings.withLock { $0.logLevel } }
        set { settings.withLock { $0.logLevel = newValue } }
    }

    /// Whether the app wants messages that name people. Changes nothing.
    public var piiEnabled: Bool {
        get { settings.withLock { $0.piiEnabled } }
        set { settings.withLock { $0.piiEnabled = newValue } }
    }

    /// The data that is masked in messages. Changes nothing.
    public var logMaskingLevel: MSALLogMaskingLevel {
        get { settings.withLock { $0.logMaskingLevel } }
        set { settings.withLock { $0.logMaskingLevel = newValue } }
    }

    /// Does nothing: `callback` is not kept and never called.
    public func setLogCallback(_ callback: @escaping MSALLogCallback) {}
}

/// The type of a log callback.
public typealias MSALLogCallback = (_ level: MSALLogLevel, _ message: String?, _ containsPII: Bool) -> Void

/// The level of a log message.
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

/// The data that is masked in log messages.
public enum MSALLogMaskingLevel: Int, Sendable {
    /// All data about people and organisations.
    case settingsMaskAllPII = 0
    /// Data that identifies a person.
    case settingsMaskEUIIOnly
    /// Only secrets.
    case settingsMaskSecretsOnly
}

// MARK: Network and telemetry

/// Network settings for requests to the token service.
///
/// This module talks only to the broker, on the device's bus: no setting here changes anything.
public final class MSALHTTPConfig: Sendable {
    private let settings = Locked(
        (retryCount: 1, retryInterval: 0.5, timeoutIntervalForRequest: 300.0, timeoutIntervalForResource: 300.0)
    )

    fileprivate init() {}

    /// The number of retries of a failed request. Changes nothing.
    public var retryCount: Int {
        get { settings.withLock { $0.retryCount } }
        set { settings.withLock { $0.retryCount = newValue } }
    }

    /// The time before a retry, in seconds. Changes nothing.
    public var retryInterval: TimeInterval {
        get { settings.withLock { $0.retryInterval } }
        set { settings.withLock { $0.retryInterval = newValue } }
    }

    /// How long a request waits for data, in seconds. Changes nothing.
    public var timeoutIntervalForRequest: TimeInterval {
        get { settings.withLock { $0.timeoutIntervalForRequest } }
        set { settings.withLock { $0.timeoutIntervalForRequest = newValue } }
    }

    /// The maximum duration of a request, in seconds. Changes nothing.
    public var timeoutIntervalForResource: TimeInterval {
        get { settings.withLock { $0.timeoutIntervalForResource } }
        set { settings.withLock { $0.timeoutIntervalForResource = newValue } }
    }
}

/// Telemetry settings.
///
/// This module counts nothing: no setting here changes anything, and no callback is ever called.
public final class MSALTelemetryConfig: Sendable {
    private let settings = Locked((piiEnabled: false, notifyOnFailureOnly: false, aggregationRequired: false))

    fileprivate init() {}

    /// Whether the app wants events that name people. Changes nothing.
    public var piiEnabled: Bool {
        get { settings.withLock { $0.piiEnabled } }
        set { settings.withLock { $0.piiEnabled = newValue } }
    }

    /// Whether the app wants only events of failed requests. Changes nothing.
    public var notifyOnFailureOnly: Bool {
        get { settings.withLock { $0.notifyOnFailureOnly } }
        set { settings.withLock { $0.notifyOnFailureOnly = newValue } }
    }

    /// Whether the app wants one event for each request. Changes nothing.
    public var aggregationRequired: Bool {
        get { settings.withLock { $0.aggregationRequired } }
        set { settings.withLock { $0.aggregationRequired = newValue } }
    }

    /// The app's telemetry callback. Changes nothing: it is not kept, and reads as `nil`.
    public var telemetryCallback: MSALTelemetryCallback? {
        get { nil }
        set {}
    }
}

/// The type of a telemetry callback.
public typealias MSALTelemetryCallback = (_ event: [String: String]) -> Void
