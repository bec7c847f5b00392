"""One target of the configuration: how to reach a server, and where its log and launch settings are."""

from __future__ import annotations

import ssl
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from inspector.address import Address, parse_address
from inspector.config import types as kinds
from inspector.config.types import Section
from inspector.fetch import Endpoint, tls_context
from inspector.reading import Kind, Known, Origin


class Tls(Section):
    """Files for an https URL: the authority to trust instead of the system's, and a client certificate with its key."""

    ca_file: kinds.ReadableFile | None = None
    cert_file: kinds.ReadableFile | None = None
    key_file: kinds.ReadableFile | None = None

    @model_validator(mode="after")
    def _usable(self) -> Tls:
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("has a key_file without a cert_file; name the client certificate too")
        try:
            if self.ca_file is not None:
                tls_context(self.ca_file)
        except (ssl.SSLError, OSError, ValueError):
            raise ValueError("has a ca_file that holds no usable certificate; name a PEM file") from None
        try:
            if self.cert_file is not None:
                tls_context(None, self.cert_file, self.key_file)
        except (ssl.SSLError, OSError, ValueError):
            raise ValueError("has a cert_file and key_file that do not go together; name PEM files of one certificate, its key not encrypted") from None
        return self


class Facts(Section):
    """What the operator states of a server: static facts by their field names, and its version."""

    version: kinds.Text | None = None
    model: kinds.Text | None = None
    slots: kinds.Tokens | None = None
    context_limit_tokens: kinds.Tokens | None = None
    context_guaranteed_tokens: kinds.Tokens | None = None
    model_context_tokens: kinds.Tokens | None = None
    kv_capacity_tokens: kinds.Tokens | None = None
    kv_bytes_per_token: Annotated[float, Field(gt=0)] | None = None
    kv_capacity_bytes: kinds.Bytes | None = None
    kv_unified: bool | None = None
    total_bytes: kinds.Bytes | None = None
    ceiling_bytes: kinds.Bytes | None = None
    weights_bytes: kinds.Bytes | None = None


class LaunchPid(Section):
    """The server is this process."""

    pid: Annotated[int, Field(ge=1)]


class LaunchFile(Section):
    """The server is launched by this file; `pick` names the service or container in one that has several."""

    file: kinds.ReadableFile
    pick: kinds.Text | None = None


class LaunchArgv(Section):
    """The server is launched by this command line. Neither is ever shown: they hold paths and keys."""

    argv: Annotated[kinds.HiddenList, Field(min_length=1, repr=False)]
    env: Annotated[kinds.HiddenMapping, Field(default_factory=dict, repr=False)]


def _launch_kind(value: Any) -> str | None:
    if isinstance(value, LaunchPid | LaunchFile | LaunchArgv):
        return f"<{type(value).__name__.removeprefix('Launch').lower()}>"
    if isinstance(value, dict):
        return next((f"<{key}>" for key in ("pid", "file", "argv") if key in value), None)
    return "<word>" if isinstance(value, str) and value in ("auto", "none") else None


Launch: TypeAlias = Annotated[
    Annotated[Literal["auto", "none"], Tag("<word>")]
    | Annotated[LaunchPid, Tag("<pid>")]
    | Annotated[LaunchFile, Tag("<file>")]
    | Annotated[LaunchArgv, Tag("<argv>")],
    Discriminator(_launch_kind, custom_error_type="launch", custom_error_message="launch"),
]
"""Where the server's launch settings are read. All but `none` look at the process, too: `pid` at that one, the others at what listens on the port of a local
address."""


class Target(Section):
    """One server to inspect."""

    name: kinds.Name
    url: kinds.Url
    engine: kinds.EngineName | None = None
    api_key_file: kinds.KeyFile | None = None
    api_key_env: kinds.KeyVariable | None = None
    tls: Tls = Tls()
    headers: dict[kinds.HeaderName, kinds.HeaderValue] = Field(default_factory=dict)
    logs: kinds.Log | None = None
    launch: Launch = "auto"
    may_wake: bool = False
    metrics: Literal["auto", "never"] = "auto"
    facts: Facts = Facts()
    sessions: kinds.Listed[str] | None = None
    interval: kinds.MaybeInterval = None
    labels: dict[kinds.LabelName, kinds.LabelValue] = Field(default_factory=dict)

    @property
    def address(self) -> Address:
        return parse_address(self.url)

    @property
    def endpoint(self) -> Endpoint:
        """What the client needs to ask this target."""
        source = self.api_key_file or self.api_key_env
        key = source.key if source else None
        return Endpoint(self.url, key, self.headers, self.tls.ca_file, self.tls.cert_file, self.tls.key_file)

    @property
    def looks_at_process(self) -> bool:
        """Whether the process that listens on the port is looked for: only this machine's can be."""
        return self.address.is_local and self.launch != "none" and not isinstance(self.launch, LaunchPid)

    def stated(self, at: float) -> dict[str, Known[Any]]:
        """The operator's facts as readings; `at` is Unix seconds."""
        origin = Origin(Kind.OPERATOR, "facts", at)
        return {name: Known(value, origin) for name, value in self.facts.model_dump(exclude_none=True).items()}
