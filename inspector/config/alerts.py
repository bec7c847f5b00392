"""When an alert fires and resolves, and the Alertmanager that is told."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from inspector.config import types as kinds
from inspector.config.target import Tls
from inspector.config.types import Section
from inspector.secrets import Secret


class Alerts(Section):
    """Seconds. The keys are Prometheus' own words: `for` of bad before an alert fires, `keep_firing_for` of good before it resolves."""

    before_firing: Annotated[kinds.Delay, Field(alias="for")] = 60.0
    keep_firing_for: kinds.Delay = 120.0
    unknown_after: kinds.Delay = 600.0


class BasicAuth(Section):
    username: kinds.Text
    password_file: kinds.KeyFile


class Alertmanager(Section):
    """Where alerts are sent. `resend`: seconds between two times that a firing alert is told."""

    url: kinds.WebUrl
    bearer_token_file: kinds.KeyFile | None = None
    basic_auth: BasicAuth | None = None
    tls: Tls = Tls()
    resend: kinds.Duration = 60.0

    @property
    def bearer_token(self) -> Secret | None:
        return self.bearer_token_file.key if self.bearer_token_file else None

    @property
    def password(self) -> Secret | None:
        return self.basic_auth.password_file.key if self.basic_auth else None
