// Constants and functions; `import CNotify.Private` adds what <notify_private.h> declares.
@_exported public import CNotify
