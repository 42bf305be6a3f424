"""A Celery application with one task: it says that it ran, and nothing else.

The harness hands the configuration over as JSON; every key is Celery's own. The worker itself is `celery worker` as it
is released.
"""

import json
import os
import socket
import time

from celery import Celery

app = Celery("halfopen", broker=os.environ["HALFOPEN_BROKER_URL"])
app.conf.update(json.loads(os.environ["HALFOPEN_CLIENT_CONF"]))


@app.task(name="halfopen.effect", ignore_result=True)
def effect(message):
    """The proof of work: the message's number and the run's clock, on the harness' own socket."""
    line = f"{message} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as proof:
        proof.sendto(line.encode(), os.environ["HALFOPEN_EFFECTS"])
