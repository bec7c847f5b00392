"""Builds the Grafana dashboards from the tables in `fleet.py` and `target.py`.

`python deploy/grafana/build.py` writes them; `--check` writes nothing and fails where a committed one differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet import FLEET
from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from panels import NEUTRAL, Board, Kind, Panel, Query
from target import TARGET

BOARDS: Mapping[str, Board] = {"fleet": FLEET, "target": TARGET}
FOLDER = Path(__file__).parent / "dashboards"

DATASOURCE = model.DataSourceRef("prometheus", "${datasource}")
UNKNOWN = "unknown"
TO_TARGET = f"/d/{TARGET.uid}?var-datasource=${{datasource}}&var-target=${{%s.target}}&var-instance=${{%s.instance}}&${{__url_time_range}}"
LABEL_VALUES = 1
"""Grafana's number for a variable that lists the values of a label."""

NOT_OF_EVERY_ROW = frozenset({"pool", "field", "alert", "severity", "resource", "session"})
"""Columns in which an empty cell is not an unknown: the row is about no pool, no field."""

EVERY = ".*"
"""What "All" stands for: also a label that is empty, such as the engine of a target that was not recognized yet."""


def built(board: Board) -> dict[str, Any]:
    """The dashboard as Grafana's JSON, without ids: Grafana gives its own."""
    made = dashboard.Dashboard(board.title).uid(board.uid).description(board.description).tags(["inference-inspector"]).readonly()
    made.time("now-3h", "now").refresh("30s").tooltip(model.DashboardCursorSync.CROSSHAIR).timezone("browser")
    made.variables([dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"), *_variables(board)])
    made.link(_link(FLEET if board.one else TARGET))
    for heading, panels in board.sections.items():
        made.with_row(dashboard.Row(heading))
        for panel in panels:
            made.with_panel(_panel(panel, board))
    document: dict[str, Any] = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    for panel in document["panels"]:
        panel.pop("id", None)
        if panel["type"] == "state-timeline":
            # Grafana's own option, for which the SDK has no word.
            panel["fieldConfig"]["defaults"].setdefault("custom", {})["spanNulls"] = False
    return document


def text(board: Board) -> str:
    """The file's content: the same for the same tables."""
    return json.dumps(built(board), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _variables(board: Board) -> list[dashboard.QueryVariable]:
    of_engine = 'inspector_polls_total{engine=~"$engine"}'
    of_target = 'target="$target"' if board.one else 'engine=~"$engine", target=~"$target"'
    return [
        _variable("engine", "Engine", "inspector_polls_total", several=True),
        _variable("target", "Target", of_engine, several=not board.one),
        _variable("instance", "Inspector", f"inspector_polls_total{{{of_target}}}", several=True),
        _variable("pool", "Pool", f'inspector_field_known{{{of_target}, instance=~"$instance", pool!=""}}', several=True),
    ]


def _variable(name: str, label: str, series: str, *, several: bool) -> dashboard.QueryVariable:
    query = {"qryType": LABEL_VALUES, "query": f"label_values({series}, {name})", "refId": "PrometheusVariableQueryEditor-VariableQuery"}
    made = dashboard.QueryVariable(name).label(label).query(query).datasource(DATASOURCE)
    made.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC).multi(several).include_all(several)
    if several:
        made.all_value(EVERY).current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    return made


def _link(to: Board) -> dashboard.DashboardLink:
    link = dashboard.DashboardLink(to.title).type(model.DashboardLinkType.LINK).icon("dashboard").tooltip(to.description)
    return link.url(f"/d/{to.uid}?var-datasource=${{datasource}}").keep_time(True)


# --- One panel ------------------------------------------------------------------------------------------------------------------------


def _panel(panel: Panel, board: Board) -> Any:
    """Any: the SDK's builders have the same methods, and no class in common."""
    made = SHAPES[panel.kind](panel)
    made.title(panel.title).description(panel.description).unit(panel.unit).no_value(UNKNOWN).datasource(DATASOURCE).span(panel.width).height(panel.height)
    made.targets([_query(panel, number, query) for number, query in enumerate(panel.queries)])
    if panel.top is not None:
        made.min(0).max(panel.top)
    if panel.words and panel.kind is not Kind.TABLE:
        made.mappings([_mapping(panel.words)])
    steps = [model.Threshold(None if at == 0 else value, colour) for at, (value, colour) in enumerate(panel.steps or ((0, NEUTRAL),))]
    made.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
    if not board.one and "target" in (panel.columns or "".join(query.legend for query in panel.queries)):
        where = "__data.fields" if panel.kind is Kind.TABLE else "__field.labels"
        made.data_links([dashboard.DashboardLink(f"Open ${{{where}.target}}").url(TO_TARGET % (where, where))])
    if panel.repeat:
        made.repeat(panel.repeat).repeat_direction("h").max_per_row(2)
    return made


def _query(panel: Panel, number: int, query: Query) -> prometheus.Dataquery:
    """Only what looks back asks for a range: the last value of a range would pass for the present one after it is gone."""
    made = prometheus.Dataquery().expr(query.expr).ref_id(chr(ord("A") + number)).datasource(DATASOURCE)
    if panel.kind is Kind.TABLE:
        return made.instant().format(PromQueryFormat.TABLE)
    made.legend_format(query.legend)
    return made.range() if panel.kind in (Kind.LINES, Kind.STACK, Kind.TIMELINE) else made.instant()


def _lines(panel: Panel) -> timeseries.Panel:
    made = timeseries.Panel().span_nulls(False).line_width(1).fill_opacity(0).show_points(looks.VisibilityMode.AUTO).axis_soft_min(0)
    made.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
    made.tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.NONE))
    made.legend(common.VizLegendOptions().show_legend(True).display_mode(looks.LegendDisplayMode.LIST).placement(looks.LegendPlacement.BOTTOM))
    if panel.steps:
        made.thresholds_style(common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.DASHED))
    return made.override_by_regexp("possible$", [_property("custom.lineStyle", {"fill": "dash", "dash": [8, 8]})])


def _stack(panel: Panel) -> timeseries.Panel:
    """Areas on one another; the capacity is a line of its own, so that what is not known stays an empty space below it."""
    made = _lines(panel).fill_opacity(40).stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A"))
    for start, colour in (("used", "orange"), ("reclaimable", "blue"), ("free", "green")):
        made.override_by_regexp(f"^{start}", [_property("color", {"mode": "fixed", "fixedColor": colour})])
    alone = {"mode": "none", "group": "A"}
    return made.override_by_regexp(
        "^capacity",
        [_property("custom.stacking", alone), _property("custom.fillOpacity", 0), _property("color", {"mode": "fixed", "fixedColor": NEUTRAL})],
    )


def _timeline(_: Panel) -> statetimeline.Panel:
    return statetimeline.Panel().show_value(looks.VisibilityMode.AUTO).row_height(0.9).merge_values(True).color_scheme(_by_threshold())


def _stat(panel: Panel) -> stat.Panel:
    made = stat.Panel().graph_mode(looks.BigValueGraphMode.NONE).color_mode(looks.BigValueColorMode.VALUE).reduce_options(_this_moment())
    several = len(panel.queries) > 1 or "{{" in panel.queries[0].legend
    return made.text_mode(looks.BigValueTextMode.VALUE_AND_NAME if several else looks.BigValueTextMode.VALUE).color_scheme(_by_threshold())


def _names(panel: Panel) -> stat.Panel:
    return _stat(panel).text_mode(looks.BigValueTextMode.NAME)


def _bars(_: Panel) -> bargauge.Panel:
    made = bargauge.Panel().display_mode(looks.BarGaugeDisplayMode.BASIC).orientation(looks.VizOrientation.HORIZONTAL).min(0)
    return made.show_unfilled(True).reduce_options(_this_moment()).color_scheme(_by_threshold())


def _table(panel: Panel) -> table.Panel:
    """The columns that the table names, in its order; a column that a row does not have is empty. Sorted by the value, where it is shown."""
    made = table.Panel().filterable(True).show_header(True)
    made.with_transformation(model.DataTransformerConfig("filterFieldsByName", options={"include": {"names": list(panel.columns)}}))
    made.with_transformation(
        model.DataTransformerConfig(
            "organize", options={"indexByName": {name: at for at, name in enumerate(panel.columns)}, "renameByName": {"Value": "state"}}
        )
    )
    if "Value" in panel.columns:
        made.sort_by([common.TableSortByFieldState().display_name("state").desc("alert" in panel.columns)])
    if panel.words:
        # Of this column alone: a pool may have the name "0", too.
        made.override_by_name("state", [_property("custom.cellOptions", {"type": "color-text"}), _property("mappings", [_mapping(panel.words)])])
    for column in filter(NOT_OF_EVERY_ROW.__contains__, panel.columns):
        made.override_by_name(column, [_property("noValue", "–")])
    return made


def _mapping(words: Mapping[int, tuple[str, str]]) -> model.ValueMap:
    return model.ValueMap({str(n): model.ValueMappingResult(text=word, color=colour, index=at) for at, (n, (word, colour)) in enumerate(words.items())})


SHAPES: Mapping[Kind, Callable[[Panel], Any]] = {
    Kind.LINES: _lines,
    Kind.STACK: _stack,
    Kind.TIMELINE: _timeline,
    Kind.STAT: _stat,
    Kind.NAMES: _names,
    Kind.BARS: _bars,
    Kind.TABLE: _table,
}


def _this_moment() -> common.ReduceDataOptions:
    """Of an instant query: its one value."""
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)


def _by_threshold() -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)


def _property(name: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(name, value)


# --- The command ----------------------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Writes or checks the dashboards; 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 where a file differs")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the dashboards are")
    options = parser.parse_args(argv)
    differing = [path for path, content in _files(options.folder) if not path.is_file() or path.read_text(encoding="utf-8") != content]
    for path in differing:
        if options.check:
            sys.stderr.write(f"{path.name} is not what the tables say: run python deploy/grafana/build.py\n")
    if options.check:
        return 1 if differing else 0
    options.folder.mkdir(parents=True, exist_ok=True)
    for path, content in _files(options.folder):
        path.write_text(content, encoding="utf-8")
    return 0


def _files(folder: Path) -> list[tuple[Path, str]]:
    return [(folder / f"{name}.json", text(board)) for name, board in BOARDS.items()]


if __name__ == "__main__":
    sys.exit(main())
