"""A public compute catalog: settings that someone publishes for models. They were measured on no server, so they say nothing of concurrency.

One GET of the one URL; what comes back is read without trust, and a field that is missing or cannot be is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from inspector.budget import Shape
from inspector.contract import Deadline, Reply, Route
from inspector.fetch import Client, Endpoint
from inspector.reading import Known, Origin, Reading, Reason, Unknown, number, positive, text

LARGEST_CATALOG = 4 * 2**20
MOST_MODELS = 10_000
DEADLINE = 15.0
TITLE = "published settings, not measured concurrency"


class CatalogError(ValueError):
    """A catalog that cannot be read: why, and what to do."""


@dataclass(frozen=True, slots=True)
class Published:
    """One model of a catalog. `required_memory_gb` in the catalog's own GB, `max_context` in tokens."""

    id: Reading[str]
    revision: Reading[str]
    quant: Reading[str]
    required_memory_gb: Reading[float]
    max_context: Reading[int]

    def allows(self, shape: Shape) -> bool | None:
        """Whether a session of this shape is within the published context; None where that is not known."""
        return shape.total <= self.max_context.value if isinstance(self.max_context, Known) else None


@dataclass(frozen=True, slots=True)
class Catalog:
    """`unreadable`: entries that are no objects, or beyond the number that is read."""

    models: tuple[Published, ...]
    unreadable: int


async def fetch_catalog(url: str) -> Catalog:
    """Raises CatalogError for a URL that cannot be asked, and for an answer that is no catalog."""
    try:
        root, path = _parts(url)
        client = Client(Endpoint(root), largest_body=LARGEST_CATALOG)
    except ValueError:
        raise CatalogError("is not a URL that can be asked; write http://host/path or https://host/path, without a query, a name or a password") from None
    try:
        reply = await client.get(Route(path, deadline=Deadline.FAST), deadline=DEADLINE, send_key=False)
    finally:
        await client.aclose()
    if isinstance(reply, Unknown):
        raise CatalogError(f"could not be read ({reply.reason}): {reply.detail}")
    if reply.status != 200:
        raise CatalogError(f"answered {reply.status}; name the catalog's own URL, redirects are not followed")
    return read_catalog(reply)


def read_catalog(reply: Reply) -> Catalog:
    """The models of an answer. Raises CatalogError where it is no catalog."""
    body = reply.json()
    if isinstance(body, Unknown):
        raise CatalogError("answered with a body that is not JSON; name the URL of a catalog")
    models = body.value.get("models") if isinstance(body.value, dict) else None
    if not isinstance(models, list):
        raise CatalogError('answered without a list "models"; name the URL of a catalog')
    entries = [entry for entry in models[:MOST_MODELS] if isinstance(entry, dict)]
    return Catalog(tuple(_published(entry, reply.origin) for entry in entries), len(models) - len(entries))


def _published(entry: Mapping[str, Any], origin: Origin) -> Published:
    def of(name: str, read: Any) -> Any:
        if entry.get(name) is None:
            return Unknown(Reason.NOT_REPORTED, f"the catalog does not state {name}")
        return read(entry[name], origin, name)

    return Published(of("id", text), of("revision", text), of("quant", text), of("requiredMemGB", number), of("maxContext", positive))


def _parts(url: str) -> tuple[str, str]:
    """The server's URL and the path on it. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment or " " in url or not url.isprintable():
        raise ValueError
    return f"{parts.scheme}://{parts.netloc}", parts.path or "/"
