"""Plans on a terminal, from their reports. What a server or a catalog says is text here, never markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inspector.cli.telling import Terminal
from inspector.wording import size


def tell(report: Mapping[str, Any]) -> None:
    console = Terminal().console
    {"live": _live, "files": _files, "catalog": _catalog}[report["plan"]](console, report)


def _live(console: Console, report: Mapping[str, Any]) -> None:
    for target in report["targets"]:
        console.print(Text(target["target"], "bold").append(f" {target['engine']}, {target['state']} {target['state_detail']}".rstrip(), ""))
        if not target["pools"]:
            console.print(Text("  no budget: the server shows no KV cache now"))
        for pool in target["pools"]:
            console.print(Text(f"  pool {pool['pool']}: {' | or '.join(pool['layouts']) or 'layout unknown'}"))
            for name, session in pool["sessions"].items():
                _session(console, name, session)
            console.print(Text("    rests on " + "; ".join(f"{field} from {source}" for field, source in pool["rests_on"].items()), "dim"))


def _session(console: Console, name: str, session: Mapping[str, Any]) -> None:
    limit = f", limited by {session['limited_by']}" if session["limited_by"] else ""
    shape = f"{session['prompt_tokens']:,}+{session['output_tokens']:,} tokens"
    console.print(Text(f"    {name} ({shape}): {_span(session['headroom'])} more fit now; an empty server holds {_span(session['capacity'])}{limit}"))
    for change in session["changes"]:
        console.print(Text(f"      with {change['with']}: {_span(change['capacity'])}").append(f"  rests on {change['rests_on']}", "dim"))


def _span(span: Mapping[str, Any]) -> str:
    if span["guaranteed"] is None:
        return f"unknown ({span['reason']}: {span['detail']})"
    return f"{span['guaranteed']}" if span["guaranteed"] == span["possible"] else f"{span['guaranteed']} guaranteed, {span['possible']} possible"


def _files(console: Console, report: Mapping[str, Any]) -> None:
    trained = report["model_context_tokens"]
    console.print(Text(report["architecture"], "bold").append(f" under {report['engine']}, made for {_number(trained)} tokens", ""))
    _line(console, "weights", _bytes(report["weights_bytes"]))
    _line(console, "KV cache", _cache(report["cache"]))
    if "largest_context" in report:
        _line(console, "largest context", _point(report["largest_context"]))
    if "most_sessions" in report:
        found = report["most_sessions"]
        _line(console, "most sessions", f"{_number(found['sessions'])} of {found['context_tokens']:,} tokens{_why(found)}")
    if "needed" in report:
        _line(console, "needed", _point(report["needed"]))
    rows = report["table"]
    known = [row for row in rows if row["sessions"] is not None]
    for why in dict.fromkeys(_why(row) for row in rows if row["sessions"] is None):
        _line(console, "table", f"unknown{why}")
    if known:
        _table(console, ("sessions", "tokens each", "context setting", "KV cache", "limited by"), [_cells(row) for row in known])
    console.print(Text("  Weights and KV cache only: compute buffers and other tenants of the memory come on top.", "dim"))


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    kv_bytes = "-" if row["kv_bytes"] is None else size(row["kv_bytes"])
    return f"{row['sessions']}", f"{row['context_tokens']:,}", _number(row["context_setting"], "-"), kv_bytes, row["limited_by"] or "-"


def _cache(cache: Mapping[str, Any]) -> str:
    if cache["token_bytes"] is None:
        return f"unknown{_why(cache)}"
    parts = [f"{cache['token_bytes']:,} bytes a token"]
    if cache["window_bytes"]:
        parts.append(f"{cache['window_bytes']:,} bytes for each of the last {cache['window_tokens']:,}")
    if cache["session_bytes"]:
        parts.append(f"{size(cache['session_bytes'])} a session")
    return ", ".join(parts)


def _point(point: Mapping[str, Any]) -> str:
    if point["sessions"] is None:
        return f"unknown{_why(point)}"
    told = f"{point['sessions']} x {point['context_tokens']:,} tokens"
    told += f", context setting {point['context_setting']:,}" if point["context_setting"] is not None else ""
    told += f", KV cache {size(point['kv_bytes'])}" if point["kv_bytes"] is not None else ""
    return told + (f", limited by {point['limited_by']}" if point["limited_by"] else "")


def _catalog(console: Console, report: Mapping[str, Any]) -> None:
    console.print(Text(f"{len(report['models'])} models: {report['basis']}", "bold"))
    names = list(report["models"][0]["sessions"]) if report["models"] else []
    rows = [
        (
            *(_text(model[field]) for field in ("id", "revision", "quant", "requiredMemGB")),
            _number(model["maxContext"]),
            *({True: "within", False: "too long", None: "unknown"}[model["sessions"][name]["within_max_context"]] for name in names),
        )
        for model in report["models"]
    ]
    if rows:
        _table(console, ("id", "revision", "quant", "requiredMemGB", "maxContext", *names), rows)
    if report["unreadable_entries"]:
        console.print(Text(f"  {report['unreadable_entries']} entries cannot be read"))


def _table(console: Console, heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 2))
    for head in heads:
        table.add_column(Text(head))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _line(console: Console, name: str, text: str) -> None:
    console.print(Text(f"  {name}: {text}"))


def _why(found: Mapping[str, Any]) -> str:
    return f" ({found['reason']}: {found['detail']})" if "reason" in found else ""


def _number(value: int | None, absent: str = "unknown") -> str:
    return absent if value is None else f"{value:,}"


def _bytes(value: int | None) -> str:
    return "unknown" if value is None else size(value)


def _text(value: object) -> str:
    return "unknown" if value is None else str(value)
