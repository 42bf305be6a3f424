#!/bin/sh
# Started as root it makes the data directory the broker's own, then becomes the user `rabbitmq`.
set -e
if [ "$(id -u)" = 0 ] && [ "${1#rabbitmq}" != "$1" ]; then
    chown rabbitmq:rabbitmq /var/lib/rabbitmq
    exec setpriv --reuid=rabbitmq --regid=rabbitmq --init-groups env HOME=/var/lib/rabbitmq "$@"
fi
exec "$@"
