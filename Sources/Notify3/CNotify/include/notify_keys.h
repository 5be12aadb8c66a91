#ifndef _NOTIFY_KEYS_H_
#define _NOTIFY_KEYS_H_

/* Names that parts of Darwin post. On Linux nothing posts them, unless /etc/notify.conf tells notifyd to post one when
 * a path changes. */

#define kNotifySCHostnameChange "com.apple.system.hostname"
#define kNotifySCNetworkChange "com.apple.system.config.network_change"
#define kNotifyTimeZoneChange "com.apple.system.timezone"
#define kNotifyClockSet "com.apple.system.clock_set"
#define kNotifyVFSMount "com.apple.system.kernel.mount"
#define kNotifyVFSUnmount "com.apple.system.kernel.unmount"
#define kNotifyVFSUpdate "com.apple.system.kernel.mountupdate"
#define kNotifyVFSLowDiskSpace "com.apple.system.lowdiskspace"
#define kNotifyASLDBUpdate "com.apple.system.logger.message"

#endif
