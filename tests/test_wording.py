"""Values as people read them."""

import pytest

from inspector import wording
from inspector.budget import Budget
from inspector.layout import Span
from inspector.reading import Reason, Unknown

UNKNOWN = Unknown(Reason.ENDPOINT_DISABLED, "start llama-server with --slots")


@pytest.mark.parametrize(
    ("budget", "line"),
    [
        (Budget(Span(4, 4), Span(3, 3), "slots"), "sessions chat: 3 more fit now; an empty server holds 4, limited by slots"),
        (Budget(Span(1, 4), Span(0, 3), "kv"), "sessions chat: 0 to 3 more fit now; an empty server holds 1 to 4, limited by kv"),
        (
            Budget(Span(4, 4), UNKNOWN, "slots"),
            "sessions chat: unknown (endpoint_disabled) more fit now, start llama-server with --slots; an empty server holds 4, limited by slots",
        ),
    ],
)
def test_a_budget_is_told_in_one_line(budget, line):
    assert wording.sessions("chat", budget) == line


@pytest.mark.parametrize(("share", "text"), [(0.0, "0%"), (0.0004, "<0.1%"), (0.5, "50%"), (0.9999, ">99.9%"), (1.0, "100%")])
def test_a_share_is_never_rounded_to_empty_or_full(share, text):
    assert wording.share(share) == text
