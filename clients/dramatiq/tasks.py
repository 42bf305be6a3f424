"""A dramatiq application with one actor: it says that it ran, and nothing else.

The harness hands the options over as JSON: `prefetch` becomes dramatiq's own environment variable, every other key goes into
pika's URL (`heartbeat`, `socket_timeout`, …).
"""

import json
import os
import socket
import time
import urllib.parse

conf = json.loads(os.environ["HALFOPEN_CLIENT_CONF"])
if "prefetch" in conf:
    # Read when dramatiq is imported.
    os.environ["dramatiq_queue_prefetch"] = str(conf.pop("prefetch"))

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

url = os.environ["HALFOPEN_BROKER_URL"] + ("?" + urllib.parse.urlencode(conf) if conf else "")
dramatiq.set_broker(RabbitmqBroker(url=url))


@dramatiq.actor(queue_name=os.environ["HALFOPEN_QUEUE"], max_retries=0)
def effect(message):
    line = f"{message} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as proof:
        proof.sendto(line.encode(), os.environ["HALFOPEN_EFFECTS"])
