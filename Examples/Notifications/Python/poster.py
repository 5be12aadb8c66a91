import asyncio
from notify_center import distributed


async def main() -> None:
    await distributed().post("com.example.order", object="till-3", user_info={"total": 12.5})


asyncio.run(main())
