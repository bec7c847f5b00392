"""Writes prometheus-rule.yaml: Prometheus' rules, in the object that its operator takes.

    python deploy/kubernetes/prometheus_rule.py

The rules are taken over as text, so that their comments come along. A test fails where the object and the rules are not the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
RULES = HERE.parent / "prometheus"
OBJECT = HERE / "prometheus-rule.yaml"

HEAD = """\
# Made by prometheus_rule.py from deploy/prometheus/*-rules.yaml: change those, and run it again.
# Your Prometheus may want a label here (its ruleSelector), such as release: …
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: inference-inspector
  labels: {app.kubernetes.io/name: inference-inspector}
spec:
  groups:
"""


def rule_files() -> list[Path]:
    """The files with rules, in the order in which they are taken over."""
    return sorted(RULES.glob("*-rules.yaml"))


def prometheus_rule() -> str:
    """The object, as YAML. Raises ValueError for a file with more than groups in it."""
    return HEAD + "".join(line for path in rule_files() for line in _groups(path))


def _groups(path: Path) -> Iterator[str]:
    before, groups, after = path.read_text(encoding="utf-8").partition("\ngroups:\n")
    if not groups or any(line and not line.startswith("#") for line in before.splitlines()):
        raise ValueError(f"{path.name} holds more than groups of rules, or none; an object has room for groups only")
    for line in after.splitlines():
        yield f"  {line}\n" if line else "\n"


if __name__ == "__main__":
    OBJECT.write_text(prometheus_rule(), encoding="utf-8")
