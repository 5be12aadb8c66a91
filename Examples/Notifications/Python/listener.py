import asyncio
from notify_center import distributed


async def main() -> None:
    async with distributed().observe("com.example.order") as orders:
        async for order in orders:
            print(order.object, order.user_info["total"], flush=True)


asyncio.run(main())
