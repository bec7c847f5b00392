"""What /slots answers, of every build since 2024. Its prompts and texts are passed over: only what is named here is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inspector.contract import Reply
from inspector.reading import Known, Origin, Reading, Reason, Unknown, count, flag, invalid, positive
from inspector_llamacpp import causes


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot. `tokens` is None where the key is not there; `remain`: output tokens still to come; `untouched`: it has served no request yet."""

    id: int
    busy: Reading[bool]
    context: Reading[int]
    tokens: Reading[int] | None
    decoded: Reading[int]
    remain: Reading[int]
    untouched: bool


@dataclass(frozen=True, slots=True)
class SlotTable:
    """/slots. `split_era`: slots have the `state` number of 2024, when every slot had cells of its own."""

    rows: tuple[SlotRow, ...]
    split_era: bool
    origin: Origin


def slot_table(reply: Reply, slots: Reading[int]) -> Reading[SlotTable]:
    """All slots, or why there is no telling: one that cannot be read, or too few of them, spoils every sum. `slots` is how many there must be, where known."""
    body = reply.json()
    if isinstance(body, Unknown):
        return body
    if not isinstance(body.value, list) or not body.value or not all(isinstance(row, dict) for row in body.value):
        return invalid("/slots", body.value)
    ids = [row.get("id") for row in body.value]
    if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < 2**31 for i in ids) or len(set(ids)) < len(ids):
        return Unknown(Reason.INVALID, "/slots has slots without an id of their own")
    if isinstance(slots, Known) and slots.value != len(ids):
        return Unknown(Reason.INVALID, f"/slots has {len(ids)} slots where the server has {slots.value}")
    rows = tuple(_slot_row(row, reply.origin) for row in body.value)
    split_era = all("is_processing" not in row and isinstance(row.get("state"), int) and not isinstance(row["state"], bool) for row in body.value)
    return Known(SlotTable(rows, split_era, reply.origin), reply.origin)


def _slot_row(row: Mapping[str, Any], origin: Origin) -> SlotRow:
    context = positive(row.get("n_ctx"), origin, "n_ctx of a slot")
    token = row.get("next_token")
    if isinstance(token, list):  # an object until August 2025, since then a list of one
        token = token[0] if len(token) == 1 else None
    fields: Mapping[str, Any] = token if isinstance(token, dict) else {}
    decoded = count(fields.get("n_decoded"), origin, "n_decoded of a slot")
    return SlotRow(
        id=row["id"],
        busy=_busy(row, origin),
        context=context,
        tokens=_tokens(row["n_prompt_tokens"], context, origin) if "n_prompt_tokens" in row else None,
        decoded=decoded,
        remain=_remain(fields.get("n_remain"), decoded, origin),
        untouched=not {"id_task", "params", "next_token"} & row.keys(),
    )


def _busy(row: Mapping[str, Any], origin: Origin) -> Reading[bool]:
    if "is_processing" in row:
        return flag(row["is_processing"], origin, "is_processing of a slot")
    state = count(row.get("state"), origin, "state of a slot")
    return state if isinstance(state, Unknown) else Known(state.value > 0, origin)


def _remain(value: object, decoded: Reading[int], origin: Origin) -> Reading[int]:
    """What a request may still add. Before its first token nothing tells how much of its prompt is still to come; without a limit it is -1."""
    if isinstance(decoded, Unknown) or decoded.value == 0:
        return causes.IN_PREFILL
    return causes.NO_LIMIT if value == -1 and not isinstance(value, bool) else count(value, origin, "n_remain of a slot")


def _tokens(value: object, context: Reading[int], origin: Origin) -> Reading[int]:
    tokens = count(value, origin, "n_prompt_tokens of a slot")
    if isinstance(tokens, Known) and isinstance(context, Known) and tokens.value > context.value:
        return Unknown(Reason.INVALID, "n_prompt_tokens of a slot is above its context")
    return tokens


def slots_context(table: Reading[SlotTable]) -> Reading[int]:
    """The context of a slot as /slots shows it: one number, for all slots have the same."""
    if isinstance(table, Unknown):
        return table
    contexts = [row.context for row in table.value.rows]
    for context in contexts:
        if isinstance(context, Unknown):
            return context
    if len({c.value for c in contexts if isinstance(c, Known)}) > 1:
        return Unknown(Reason.INVALID, "the slots of /slots differ in their context")
    return contexts[0]
