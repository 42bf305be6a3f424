"""A worker that knows nothing of any library: it pops from a Redis list over a plain socket.

    python3 worker.py HOST PORT PASSWORD DATABASE QUEUE [READ_TIMEOUT_S]

It prints what it has done, and connects again when it notices that its connection is gone.
"""

import socket
import sys
import time

host, port, password, database, queue = sys.argv[1:6]
read_timeout = float(sys.argv[6]) if len(sys.argv) > 6 and sys.argv[6] != "none" else None


def command(connection, *words):
    connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))


def reply(lines):
    line = lines.readline()
    if not line:
        raise ConnectionError("the server closed the connection")
    if line[:1] == b"*":
        return [reply(lines) for _ in range(int(line[1:]))]
    if line[:1] == b"$":
        return lines.read(int(line[1:]) + 2)[:-2]
    return line[1:-2]


while True:
    try:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            lines = connection.makefile("rb")
            for words in ((b"AUTH", password.encode()), (b"SELECT", database.encode())):
                command(connection, *words)
                reply(lines)
            connection.settimeout(read_timeout)
            while True:
                command(connection, b"BRPOP", queue.encode(), b"0")
                _, message = reply(lines)
                print("done", message.decode(), flush=True)
    except OSError as error:
        print("lost the connection:", error, flush=True)
        time.sleep(0.5)
