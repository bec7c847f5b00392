"""The one HTTP client towards servers: GET only, listed routes only, capped and timed."""

from inspector.fetch.client import LARGEST_BODY, Client, Endpoint, tls_context

__all__ = ["LARGEST_BODY", "Client", "Endpoint", "tls_context"]
