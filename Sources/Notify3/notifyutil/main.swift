import CommandSupport
import Glibc

exit(NotifyUtility.run().rawValue)
