#!/bin/sh
# Started as root it becomes the user `redis`.
set -e
if [ "$(id -u)" = 0 ] && [ "$1" = redis-server ]; then
    exec setpriv --reuid=redis --regid=redis --init-groups "$@"
fi
exec "$@"
