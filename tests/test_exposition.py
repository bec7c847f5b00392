"""The scanner against prometheus_client's parser, against pages of real servers, and against pages that nobody should serve."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from inspector.exposition import LONGEST_LINE, MEMORY, MOST_LINES, Page, Sample, Scanner
from inspector.reading import Kind, Known, Origin, Reason, Unknown

PAGES = Path(__file__).parent / "fixtures" / "exposition"
ORIGIN = Origin(Kind.HTTP, "/metrics", 1000.0)

repeatable = settings(derandomize=True, database=None, deadline=None, max_examples=100)


# --- Against prometheus_client ------------------------------------------------------------------------------------------------------


def reference(body: bytes) -> dict[str, list[tuple[dict[str, str], str]]]:
    """All samples by the name that stands in the body, in order; values as `plain` text.

    The parser appends `_total` to the samples of a counter that is declared without it: that is undone."""
    text = body.decode()
    declared = set(re.findall(r"^[ \t]*# TYPE (\S+) counter", text, re.MULTILINE))
    samples = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            renamed = family.type == "counter" and family.name in declared and sample.name == f"{family.name}_total"
            samples[family.name if renamed else sample.name].append((sample.labels, plain(sample.value)))
    return samples


def plain(value: float) -> str:
    """NaN equals NaN, and so do the two zeros: the reference reads `-0` as a whole number."""
    return str(float(value) + 0.0)


def comparable(samples: tuple[Sample, ...]) -> list[tuple[dict[str, str], str]]:
    return [(dict(sample.labels), plain(sample.value)) for sample in samples]


def assert_equals_reference(page: Page, wanted: set[str], body: bytes) -> None:
    """Every wanted family as the parser reads it; `x` in place of `x_total` only where there is no `x_total`."""
    expected = reference(body)
    for name in wanted:
        exposed = name if name in expected else name.removesuffix("_total")
        assert not page.broken(name)
        assert comparable(page.samples(name)) == expected.get(exposed, [])


STEMS = ["a", "ab", "a:b", "_a", "a_sum", "vllm:kv_cache_usage_perc", "vllm:kv_cache_usage_perc_foo", "vllm:kv_cache_usage", "A9"]
names = st.sampled_from(STEMS) | st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,5}", fullmatch=True).filter(lambda name: not name.endswith("_total"))
nasty = st.text(st.sampled_from('\\"\n{}=,# \t\rn') | st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["\na 1\n", 'a{b="c"} 1', "} 5", " # {} 1"])
label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,4}", fullmatch=True).filter(lambda name: not name.startswith("__"))
values = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.floats().map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map("{:e}".format),
    st.sampled_from(
        ["NaN", "nan", "Nan", "+Inf", "-Inf", "Inf", "inf", "+inf", "-inf", "Infinity", "-infinity", "+5", ".5", "5.", "-0", "1E5", "1e+06", "007"]
    ),
)
blanks = st.sampled_from(["", " ", "\t", "  "])


@st.composite
def label_sets(draw: st.DrawFn) -> str:
    labels = draw(st.dictionaries(label_names, nasty, max_size=3))
    pairs = []
    for name, value in labels.items():
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        pairs.append(f'{draw(blanks)}{name}{draw(blanks)}={draw(blanks)}"{escaped}"{draw(blanks)}')
    comma = "," if pairs and draw(st.booleans()) else ""
    return "{" + ",".join(pairs) + comma + draw(blanks) + "}"


@st.composite
def sample_lines(draw: st.DrawFn) -> str:
    """A line as the format allows it. Blanks are of one kind behind the labels: the reference trips over mixtures."""
    name = draw(names) + draw(st.sampled_from(["", "", "_total"]))
    exemplar = f" # {draw(label_sets())} {draw(values)}" if draw(st.integers(0, 4)) == 0 else ""
    if exemplar and draw(st.booleans()):
        exemplar += " 1520879607.789"
    gap = " " if exemplar else draw(st.sampled_from([" ", "  ", "\t"]))
    labels = draw(blanks) + draw(label_sets()) + draw(st.sampled_from(["", gap])) if draw(st.booleans()) else gap
    timestamp = f"{gap}{draw(st.integers(-(10**13), 10**13))}" if draw(st.integers(0, 3)) == 0 else ""
    return f"{draw(blanks)}{name}{labels}{draw(values)}{timestamp}{exemplar}{'' if exemplar else draw(blanks)}"


@st.composite
def comment_lines(draw: st.DrawFn) -> str:
    name = draw(names)
    words = draw(nasty).replace("\n", " ")
    kind = draw(st.sampled_from(["gauge", "counter", "histogram", "summary", "untyped"]))
    return draw(st.sampled_from([f"# HELP {name} {words}", f"# TYPE {name} {kind}", f"# {name} 5", f"#{name} 5", "#", "# EOF", "", " \t", f"# HELP {name}"]))


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(st.one_of(sample_lines(), sample_lines(), comment_lines()), max_size=12))
    ending = draw(st.sampled_from(["\n", "\r\n"]))
    return (ending.join(lines) + draw(st.sampled_from(["", ending]))).encode()


def with_one_spelling(body: bytes) -> set[str]:
    """The names in a body; bodies with two spellings of one counter are left out, as the reference makes them one."""
    present = set(reference(body))
    assume(not any(f"{name}_total" in present for name in present))
    return present


@repeatable
@given(bodies(), st.sets(names | names.map("{}_total".format)), st.randoms(use_true_random=False))
def test_generated_pages_read_as_the_reference_reads_them(body, others, random):
    """Whatever is wanted, there or not, on any valid page: the very samples of prometheus_client's parser, in order."""
    present = sorted(with_one_spelling(body))
    wanted = set(random.sample(present, random.randint(0, len(present)))) | others
    assert_equals_reference(Scanner(wanted).scan(body), wanted, body)


@settings(repeatable, max_examples=40)
@given(st.lists(bodies(), min_size=1, max_size=3))
def test_what_is_remembered_of_earlier_pages_changes_nothing(pages):
    """A scanner that has seen other pages, and the same page, reads as a fresh one."""
    wanted = {name for body in pages for name in reference(body)}
    scanner = Scanner(wanted)
    for body in [*pages, *pages]:
        seasoned, fresh = scanner.scan(body), Scanner(wanted).scan(body)
        for name in wanted:
            assert comparable(seasoned.samples(name)) == comparable(fresh.samples(name))


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.txt")), ids=lambda path: path.stem)
def test_pages_of_real_servers_read_as_the_reference_reads_them(path):
    body = path.read_bytes()
    present = set(reference(body))
    assert len(present) > 5
    wanted = present | {"vllm:gpu_cache_usage_perc", "llamacpp:kv_cache_usage_ratio"}
    scanner = Scanner(wanted)
    for page in (body, body.replace(b"\n", b"\r\n"), body.rstrip(b"\n")):
        assert_equals_reference(scanner.scan(page), wanted, body)


def test_figures_that_can_be_read_off_the_captured_pages():
    llamacpp = Scanner(["llamacpp:n_tokens_max", "llamacpp:requests_processing"]).scan((PAGES / "llamacpp-b11434-busy.txt").read_bytes())
    assert llamacpp.one("llamacpp:n_tokens_max", ORIGIN) == Known(561.0, ORIGIN)
    vllm = Scanner(["vllm:kv_cache_usage_perc", "vllm:cache_config_info"]).scan((PAGES / "vllm-0.32.0-two-engines.txt").read_bytes())
    assert [sample.labels["engine"] for sample in vllm.samples("vllm:kv_cache_usage_perc")] == ["0", "1"]
    assert {sample.labels["num_gpu_blocks_override"] for sample in vllm.samples("vllm:cache_config_info")} == {"24"}
    off = Scanner(["vllm:kv_cache_usage_perc"]).scan((PAGES / "vllm-0.32.0-statistics-off.txt").read_bytes())
    assert off.one("vllm:kv_cache_usage_perc", ORIGIN).reason is Reason.NOT_REPORTED


# --- Which lines are a family's -----------------------------------------------------------------------------------------------------


def values_of(name: str, body: bytes) -> list[float]:
    page = Scanner([name]).scan(body)
    assert not page.broken(name)
    return [sample.value for sample in page.samples(name)]


@pytest.mark.parametrize(
    "body",
    [
        b"kv_usage_foo 1\n",
        b"kv_usage:foo 1\n",
        b"kv_usage_total 1\n",
        b"the_kv_usage 1\n",
        b"# HELP other kv_usage 1\n# kv_usage 1\n#kv_usage 1\n",
        b'other{a="kv_usage 1"} 2\n',
        b'other{a="\\nkv_usage 1"} 2\n',
        b"other 1 kv_usage 1\n",
        b"\n\n\n",
        b"",
    ],
)
def test_a_name_matches_whole_and_only_where_a_line_begins(body):
    assert values_of("kv_usage", body) == []


def test_lines_of_a_family_are_found_wherever_they_stand():
    """The format asks for one group; a page that joins several servers' pages must not be read in part."""
    assert values_of("a", b'a{e="0"} 1\nb 2\n# TYPE c gauge\nc 3\n  a{e="1"} 4\na{e="0"} 1') == [1.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"x_total 1\n", [1.0]),
        (b"x 2\n", [2.0]),
        (b"x_total 1\nx 2\n", [1.0]),
        (b"x 2\nx_total 1\n", [1.0]),
        (b"x_created 9\n", []),
        (b"x broken\nx_total 1\n", [1.0]),
    ],
)
def test_a_counter_is_read_in_either_spelling_and_never_summed(body, expected):
    assert values_of("x_total", body) == expected


def test_a_broken_counter_is_not_replaced_by_its_other_spelling():
    assert Scanner(["x_total"]).scan(b"x 2\nx_total broken\n").broken("x_total")


def test_the_plain_name_never_means_the_counter():
    page = Scanner(["x", "x_total"]).scan(b"x_total 1\n")
    assert (page.samples("x"), [s.value for s in page.samples("x_total")]) == ((), [1.0])


def test_equal_sample_lines_are_both_kept_and_one_refuses_them():
    page = Scanner(["x"]).scan(b'x{a="b"} 1\nx{a="b"} 1\n')
    assert len(page.samples("x")) == 2
    assert page.one("x", ORIGIN).reason is Reason.INVALID


@pytest.mark.parametrize("name", ["", "a b", "a{", "9a", "é", "a\n"])
def test_what_cannot_be_a_name_is_refused_at_once(name):
    with pytest.raises(ValueError, match="not the name of a metric"):
        Scanner([name])


def test_a_scanner_that_wants_nothing_finds_nothing_and_an_unwanted_name_is_an_error():
    page = Scanner([]).scan(b"a 1\n\n")
    assert page == Page({})
    with pytest.raises(KeyError):
        page.samples("a")


# --- Readings -----------------------------------------------------------------------------------------------------------------------


def test_a_single_sample_is_known_and_a_measured_zero_is_zero():
    assert Scanner(["x"]).scan(b"x 0\n").one("x", ORIGIN) == Known(0.0, ORIGIN)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", Reason.NOT_REPORTED),
        (b"# TYPE x gauge\n", Reason.NOT_REPORTED),
        (b"x 1 2 3\n", Reason.INVALID),
        (b'x{a="1"} 1\nx{a="2"} 1\n', Reason.INVALID),
        (b"x NaN\n", Reason.INVALID),
        (b"x +Inf\n", Reason.INVALID),
        (b"x 1e999\n", Reason.INVALID),
    ],
)
def test_what_is_not_one_finite_number_is_unknown_and_names_the_family(body, reason):
    reading = Scanner(["x"]).scan(body).one("x", ORIGIN)
    assert isinstance(reading, Unknown)
    assert reading.reason is reason
    assert "/metrics" in reading.detail
    assert " x" in reading.detail


def test_no_text_of_a_broken_line_reaches_the_detail():
    reading = Scanner(["x"]).scan(b'x{key="sk-secret"} sk-secret\n').one("x", ORIGIN)
    assert reading.reason is Reason.INVALID
    assert "secret" not in reading.detail


# --- Broken and hostile pages -------------------------------------------------------------------------------------------------------

BROKEN = [
    b"x",
    b"x ",
    b"x\r",
    b"x one",
    b"x=1",
    b"x-1",
    b"x.1",
    b'x"1',
    b"x\xff 1",
    b"x 1_000",
    b"x 0x10",
    b"x 1,5",
    b"x 1 two",
    b"x 1 2_0",
    b"x 1 2 3",
    b"x 1 # no exemplar",
    b"x 1 # {",
    b"x 1 # {}",
    b'x 1 # {a="b"} one',
    b'x 1 # {a="b"} 1 2 3',
    b"x 1# {} 1",
    b"x # {} 1",
    b"x {",
    b"x{} ",
    b"x}",
    b"x} 1",
    b"x{}} 1",
    b"x{{} 1",
    b"x{,} 1",
    b'x{a="b" 1',
    b'x{a="b} 1',
    b'x{a="b\\"} 1',
    b'x{a="b"c="d"} 1',
    b'x{a="b"c} 1',
    b'x{a="b",,} 1',
    b"x{a=b} 1",
    b"x{a} 1",
    b'x{="b"} 1',
    b'x{9a="b"} 1',
    b'x{a="b",a="c"} 1',
    b'x{__name__="y"} 1',
    b'x{a="\xff"} 1',
    b'x{a="b"} 1 {c="d"} 2',
    b'x{a="b"} \x00',
    b"x " + b"1" * (LONGEST_LINE + 1) + b" 2",
    b"x{} " + b"1" * (LONGEST_LINE + 1) + b" 2",
    b'x{a="' + b"b" * LONGEST_LINE + b'"} 1',
]


@pytest.mark.parametrize("line", BROKEN, ids=lambda line: repr(line[:30]))
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_a_broken_line_makes_its_family_invalid_and_no_other(line, ending):
    """Not even the family's good lines count: they may be half of a figure. The scanner knows all good label sets, so that its short way is tried too."""
    scanner = Scanner(["x", "y", "y_total"])
    scanner.scan(b'y 1\ny{} 1\ny{a="b"} 1\ny{a="b",} 1\ny{ } 1\n')
    page = scanner.scan(ending.join([b'y{a="b"} 1', b"x 7", line, b"x 7", b'y{a="b"} 2', b""]))
    assert page.broken("x")
    assert page.samples("x") == ()
    assert page.one("x", ORIGIN).reason is Reason.INVALID
    assert page.samples("y") == (Sample({"a": "b"}, 1.0), Sample({"a": "b"}, 2.0))


@repeatable
@given(bodies(), st.data())
def test_damage_to_one_line_leaves_all_other_families_as_they_were(body, data):
    """Bytes of one line replaced by any others, or the page cut off there."""
    wanted = set(reference(body))
    lines = body.split(b"\n")
    hit = data.draw(st.integers(0, len(lines) - 1))
    start = data.draw(st.integers(0, len(lines[hit])))
    end = data.draw(st.integers(start, len(lines[hit])))
    damaged = lines[hit][:start] + data.draw(st.binary(max_size=6).filter(lambda junk: b"\n" not in junk)) + lines[hit][end:]
    scanner = Scanner(wanted)
    before, after = scanner.scan(body), scanner.scan(b"\n".join([*lines[:hit], damaged, *lines[hit + 1 :]]))
    for name in wanted:
        if not any(line.lstrip().startswith(name.removesuffix("_total").encode()) for line in (lines[hit], damaged)):
            assert comparable(after.samples(name)) == comparable(before.samples(name))
    scanner.scan(b"\n".join([*lines[:hit], damaged]))


@repeatable
@given(
    st.lists(st.binary(max_size=8) | st.sampled_from([b"\n", b"x", b"{", b"}", b'"', b"\\", b"=", b",", b" ", b"1", b"#", b'x{a="b"} 1', b" # "]), max_size=40)
)
def test_no_bytes_make_the_scanner_raise_or_give_a_family_in_part(pieces):
    """Every line that begins with the name is a sample, or the family is broken."""
    body = b"".join(pieces)
    page = Scanner(["x"]).scan(body)
    lines = re.findall(rb"(?:\A|\n)[ \t]*x(?![a-zA-Z0-9_:])", body)
    assert page.broken("x") or len(page.samples("x")) == len(lines)


@pytest.mark.parametrize(
    "body",
    [
        b"x" * 4_000_000,
        b"x" + b" " * 4_000_000,
        b"x " + b"9" * 4_000_000 + b"z",
        b"x{" * 2_000_000,
        b'x{a="' + b"\\" * 4_000_000,
        b'x{a="' + b'\\"' * 2_000_000,
        b"x{" + b'a="",' * 800_000,
        b"x 1 # {" + b"}" * 4_000_000,
        b"x 1 # {}" + b" 1" * 2_000_000,
        b"x{}" + b" 1" * 2_000_000,
        b"\n" * 4_000_000,
        b"\n ".join([b" " * 2000] * 2000),
        bytes(range(256)) * 16_000,
    ],
    ids=lambda body: repr(body[:10]),
)
def test_megabytes_of_nonsense_give_no_sample(body):
    """Each would take minutes if any step were not linear in the page."""
    scanner = Scanner(["x", "xx_total", "y"])
    page = scanner.scan(b"y{} 1\n" + body + b"\ny 2\n")
    assert page.samples("x") == page.samples("xx_total") == ()
    assert [sample.value for sample in page.samples("y")] == [1.0, 2.0]


def test_a_page_with_endlessly_many_samples_is_given_up():
    page = Scanner(["x", "y"]).scan(b"x 1\n" * (MOST_LINES + 1))
    assert page.broken("x")
    assert page.broken("y")
    assert len(Scanner(["x"]).scan(b"x 1\n" * MOST_LINES).samples("x")) == MOST_LINES


def test_what_is_remembered_is_bounded_and_cannot_be_changed_from_outside():
    scanner = Scanner(["x"])
    for start in range(0, 20_000, 2000):
        page = scanner.scan(b"".join(b'x{a="%d"} %d\n' % (i, i) for i in range(start, start + 2000)))
        assert [(sample.labels["a"], sample.value) for sample in page.samples("x")] == [(str(i), float(i)) for i in range(start, start + 2000)]
        assert sum(map(len, scanner._known)) <= MEMORY
        assert len(scanner._known) <= MEMORY // 256
    with pytest.raises(TypeError):
        page.samples("x")[0].labels["a"] = "b"
