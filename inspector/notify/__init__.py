"""Delivery of alerts to an Alertmanager, for those who have no Prometheus to do it."""

from inspector.notify.client import AlertmanagerClient, Server
from inspector.notify.notifier import Deliveries, Notifier

__all__ = ["AlertmanagerClient", "Deliveries", "Notifier", "Server"]
