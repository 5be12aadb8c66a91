// Constants and functions; `import CNotify.Private` adds what <notify_private.h> declares.
@_exported public import CNotify
// On Apple, Dispatch comes along with `import notify`: the queue of notify_register_dispatch is a DispatchQueue.
@_exported public import Dispatch
