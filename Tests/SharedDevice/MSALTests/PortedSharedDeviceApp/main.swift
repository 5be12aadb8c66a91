// An app as it is written for shared device mode on iOS: it imports MSAL, and is compiled in Swift 5 mode. Where iOS has a view
// controller, this one has standard input: each line is a button that somebody presses. It says what it does on standard output.
//
// `ported-shared-device-app NAME PASSWORD`: the lines are `detect`, `account`, `sign-in`, `sign-out` and `quit`.
import AppleNotifications
import MSAL

setvbuf(stdout, nil, _IOLBF, 0)
guard CommandLine.arguments.count == 3 else {
    print("usage: ported-shared-device-app NAME PASSWORD")
    exit(64)
}

let controller: ViewController
do {
    let configuration = MSALPublicClientApplicationConfig(
        clientId: "8bcb2f1c-2f6b-4a8a-9d5c-0d8f1a6f7d11",
        redirectUri: "msauth.org.example.ported://auth",
        authority: nil
    )
    controller = try ViewController(
        application: MSALPublicClientApplication(configuration: configuration),
        name: CommandLine.arguments[1],
        password: CommandLine.arguments[2]
    )
} catch {
    print("could not start: \(error)")
    exit(78)
}

controller.registerDarwinNotificationListener()
Thread.detachNewThread {
    while let line = readLine() {
        DispatchQueue.main.async {
            switch line {
            case "detect": controller.detect()
            case "account": controller.checkCurrentAccount()
            case "sign-in": controller.signIn()
            case "sign-out": controller.signOut()
            default: exit(0)
            }
        }
    }
    exit(0)
}
print("ready")
dispatchMain()
