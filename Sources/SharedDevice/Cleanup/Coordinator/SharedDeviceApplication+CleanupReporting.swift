extension SharedDeviceApplication: CleanupReporting {}
