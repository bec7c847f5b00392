"""Alerts: what to watch for, by which verdicts, and the state in which each alert is. Pure; what delivers them is `inspector.notify`."""
