"""A consumer with aio-pika as it is released: `connect_robust`, which restores what was lost by itself.

The harness hands the options over as JSON: `prefetch`, `ack_late` and `timeout` by name, every other key goes into the URL
(`heartbeat`, `reconnect_interval`, …).
"""

import asyncio
import json
import logging
import os
import socket
import time

import aio_pika
import yarl

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
conf = json.loads(os.environ["HALFOPEN_CLIENT_CONF"])
prefetch, ack_late, timeout = conf.pop("prefetch", 0), conf.pop("ack_late", True), conf.pop("timeout", None)
url = yarl.URL(os.environ["HALFOPEN_BROKER_URL"]).update_query({name: str(value) for name, value in conf.items()})
proof = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


async def work(message):
    line = f"{message.body.decode()} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}"
    proof.sendto(line.encode(), os.environ["HALFOPEN_EFFECTS"])
    if ack_late:
        await message.ack()


async def main():
    connection = await aio_pika.connect_robust(url, timeout=timeout)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=prefetch)
    queue = await channel.declare_queue(os.environ["HALFOPEN_QUEUE"], durable=True)
    await queue.consume(work, no_ack=not ack_late)
    print("consuming", flush=True)
    await asyncio.Future()


asyncio.run(main())
