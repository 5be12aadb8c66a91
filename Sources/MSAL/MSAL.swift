// The shared-device surface of MSAL for iOS, over SharedDevice.
