"""May this be asked? A question that could wake a sleeping model, or keep one awake, is not put. The conditions were tried on real servers of each build."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.reading import Known, Reading, Reason, Unknown
from inspector_llamacpp import causes
from inspector_llamacpp.payloads import Props


@dataclass(frozen=True, slots=True)
class Permits:
    """`no_timer`: the process surely has no sleep timer. `safe_metrics`: its /metrics surely wakes nothing. The last two are the operator's leave."""

    props: Props
    no_timer: bool
    safe_metrics: bool
    may_wake: bool
    may_scrape: bool

    @property
    def cannot_sleep(self) -> bool:
        return self.props.sleeping is None or self.no_timer or self.may_wake

    def against_metrics(self) -> Unknown | None:
        """Why /metrics is not to be asked, None if it may be."""
        if not self.may_scrape:
            return causes.METRICS_NEVER
        if self.props.metrics_on is False:
            return causes.METRICS_DISABLED
        if self.cannot_sleep:
            return None
        if isinstance(self.props.sleeping, Unknown):
            return self.props.sleeping
        return None if self.safe_metrics else causes.METRICS_WOULD_WAKE

    def against_slots(self, processing: Reading[int]) -> Unknown | None:
        """Why /slots is not to be asked, None if it may be. `processing` is from a /metrics read of this very poll: a server at work is awake, and stays so."""
        if self.props.slots_on is False:
            return causes.SLOTS_DISABLED
        if self.cannot_sleep:
            return None
        if isinstance(self.props.sleeping, Unknown):
            return self.props.sleeping
        if isinstance(processing, Unknown) and processing.reason is Reason.TIMEOUT:
            return processing  # the server may be at work, but it does not say so
        at_work = isinstance(processing, Known) and processing.value > 0  # known only where reading /metrics was harmless
        return None if at_work else causes.SLOTS_WOULD_WAKE
