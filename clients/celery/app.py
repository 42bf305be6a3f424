"""A Celery application with one task: it says that it ran, and nothing else.

The harness hands the configuration over as JSON; every key is Celery's own, but for `halfopen_crash_on`: the number of a
message whose first worker kills itself in mid-work. The worker itself is `celery worker` as it is released.
"""

import json
import os
import signal
import socket
import time

from celery import Celery
from kombu import Exchange, Queue

conf = json.loads(os.environ["HALFOPEN_CLIENT_CONF"])
crash_on = conf.pop("halfopen_crash_on", None)

app = Celery("halfopen", broker=os.environ["HALFOPEN_BROKER_URL"])
app.conf.update(conf)

arguments = json.loads(os.environ.get("HALFOPEN_QUEUE_ARGUMENTS", "{}"))
if arguments:
    name = os.environ["HALFOPEN_QUEUE"]
    app.conf.task_queues = [Queue(name, Exchange(name), routing_key=name, queue_arguments=arguments)]


@app.task(bind=True, name="halfopen.effect", ignore_result=True)
def effect(self, message):
    """The proof of work: the message's number and the run's clock, on the harness' own socket."""
    if message == crash_on and not self.request.delivery_info.get("redelivered"):
        os.kill(os.getpid(), signal.SIGKILL)
    line = f"{message} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as proof:
        proof.sendto(line.encode(), os.environ["HALFOPEN_EFFECTS"])
