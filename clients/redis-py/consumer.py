"""A consumer with redis-py as it is released: a blocking pop in a loop that connects again.

The harness hands the options over as JSON: `brpop_timeout` is this script's (0, the default, waits for ever), every other key
goes to `redis.Redis.from_url`. The keys of `socket_keepalive_options` are the names of the socket module's constants.
"""

import json
import os
import socket
import time

import redis

conf = json.loads(os.environ["HALFOPEN_CLIENT_CONF"])
queue = os.environ["HALFOPEN_QUEUE"]
brpop_timeout = conf.pop("brpop_timeout", 0)
if "socket_keepalive_options" in conf:
    options = conf["socket_keepalive_options"]
    conf["socket_keepalive_options"] = {getattr(socket, name): value for name, value in options.items()}
client = redis.Redis.from_url(os.environ["HALFOPEN_BROKER_URL"], **conf)
proof = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

while True:
    try:
        item = client.brpop([queue], timeout=brpop_timeout)
    except redis.exceptions.RedisError as error:
        print(f"connection lost: {error!r}", flush=True)
        time.sleep(1)
        continue
    if item is not None:
        line = f"{item[1].decode()} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}"
        proof.sendto(line.encode(), os.environ["HALFOPEN_EFFECTS"])
