#!/bin/sh
# Started as root it makes the data directory PostgreSQL's own, then becomes the user `postgres`; the files of a database are
# made where there are none.
set -e
if [ "$1" = postgres ]; then
    if [ "$(id -u)" = 0 ]; then
        mkdir -p "$PGDATA"
        chown postgres:postgres "$PGDATA"
        chmod 700 "$PGDATA"
        exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
    fi
    if [ ! -s "$PGDATA/PG_VERSION" ]; then
        # The arguments are words, as in the official image.
        # What comes over a network is let in as the socket file is: there is no other than the run's.
        initdb -A "${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" -U "${POSTGRES_USER:-postgres}" -D "$PGDATA" $POSTGRES_INITDB_ARGS
        printf 'host all all all %s\n' "${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >>"$PGDATA/pg_hba.conf"
    fi
fi
exec "$@"
