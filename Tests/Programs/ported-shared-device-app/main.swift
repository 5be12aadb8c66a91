// Apps as they are written for MSAL on iOS, compiled in Swift 5 mode. Standard input replaces the screen: each line is
// the press of a button. The app reports its actions on standard output.
//
// `ported-shared-device-app NAME PASSWORD [FORM]`: FORM is `controller` (the default), `proxy`, `hybrid`, `channel` or
// `provider`. NAME and PASSWORD are typed by the person at the prompt. The line `quit` ends the program.
import AppleNotifications
import MSAL

setvbuf(stdout, nil, _IOLBF, 0)
let arguments = CommandLine.arguments
guard arguments.count >= 3 else {
    print("usage: ported-shared-device-app NAME PASSWORD [controller|proxy|hybrid|channel|provider]")
    exit(64)
}

// The forms hold their screen weakly, as MSAL does.
let screen = UIViewController(name: arguments[1], password: arguments[2])
let controller: ViewController
let form: any Form
do {
    let configuration = MSALPublicClientApplicationConfig(
        clientId: "8bcb2f1c-2f6b-4a8a-9d5c-0d8f1a6f7d11",
        redirectUri: "msauth.org.example.ported://auth",
        authority: nil
    )
    controller = try ViewController(
        application: MSALPublicClientApplication(configuration: configuration),
        name: arguments[1],
        password: arguments[2]
    )
    switch arguments.dropFirst(3).first {
    case "proxy": form = try ProxyForm(screen)
    case "hybrid": form = HybridForm(screen)
    case "channel": form = ChannelForm(screen)
    case "provider": form = try ProviderForm(screen)
    default: form = controller
    }
} catch {
    print("could not start: \(error)")
    exit(78)
}
if arguments.count == 3 { controller.registerDarwinNotificationListener() }

Thread.detachNewThread {
    while let line = readLine(), line != "quit" { DispatchQueue.main.async { form.press(line) } }
    exit(0)
}
print("ready")
dispatchMain()
