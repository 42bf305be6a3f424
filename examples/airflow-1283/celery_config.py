# The module that celery_config_options names: keepalive of 600 + 9 × 65 = 1185 s, and no TCP_USER_TIMEOUT
# (py-amqp sets 60/10/9 and one second by itself).
import socket

from airflow.providers.celery.executors.default_celery import DEFAULT_CELERY_CONFIG

CELERY_CONFIG = {
    **DEFAULT_CELERY_CONFIG,
    "broker_transport_options": {
        **DEFAULT_CELERY_CONFIG["broker_transport_options"],
        "socket_settings": {
            socket.TCP_KEEPIDLE: 600,
            socket.TCP_KEEPINTVL: 65,
            socket.TCP_KEEPCNT: 9,
            socket.TCP_USER_TIMEOUT: 0,
        },
    },
}
