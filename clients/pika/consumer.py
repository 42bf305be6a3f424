"""A consumer with pika as it is released: the loop of pika's own documentation that connects again.

The harness hands the options over as JSON: `prefetch` and `ack_late` are this script's, every other key is an attribute of
`pika.ConnectionParameters`; `ca_file` becomes its `ssl_options`.
"""

import json
import logging
import os
import socket
import ssl
import time

import pika

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
conf = json.loads(os.environ["HALFOPEN_CLIENT_CONF"])
queue = os.environ["HALFOPEN_QUEUE"]
prefetch, ack_late = conf.pop("prefetch", 0), conf.pop("ack_late", True)
parameters = pika.URLParameters(os.environ["HALFOPEN_BROKER_URL"])
ca_file = conf.pop("ca_file", None)
if ca_file:
    parameters.ssl_options = pika.SSLOptions(ssl.create_default_context(cafile=ca_file), parameters.host)
for name, value in conf.items():
    setattr(parameters, name, value)
proof = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def work(channel, method, _properties, body):
    proof.sendto(f"{body.decode()} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}".encode(), os.environ["HALFOPEN_EFFECTS"])
    if ack_late:
        channel.basic_ack(method.delivery_tag)


while True:
    try:
        channel = pika.BlockingConnection(parameters).channel()
        channel.queue_declare(queue, durable=True)
        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume(queue, work, auto_ack=not ack_late)
        print("consuming", flush=True)
        channel.start_consuming()
    except pika.exceptions.AMQPError as error:
        print(f"connection lost: {error!r}", flush=True)
        time.sleep(1)
