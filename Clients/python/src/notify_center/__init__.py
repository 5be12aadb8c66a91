"""Darwin-style notifications between processes over D-Bus, for asyncio.

    from notify_center import darwin, distributed

    await darwin().post("com.example.hello")
    async with distributed().observe("com.example.order") as orders:
        async for notification in orders:
            print(notification.object, notification.user_info)
"""

from ._center import Center, Notification, Observation, darwin, distributed
from ._connection import BusError
from ._wire import PropertyList, UserInfo

__all__ = ["BusError", "Center", "Notification", "Observation", "PropertyList", "UserInfo", "darwin", "distributed"]
