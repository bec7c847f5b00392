"""The dashboard of all targets."""

from __future__ import annotations

from panels import (
    ALERT_STATES,
    BAD,
    GOOD,
    KNOWN,
    LOW_HEADROOM,
    SAME_TARGET,
    STATES,
    WARNING,
    Board,
    Kind,
    Panel,
    Query,
    fleet,
    fleet_pool,
    per_second,
    state_number,
)

WHERE = "{{target}} {{pool}} ({{instance}})"

FLEET = Board(
    "inspector-fleet",
    "Inference Inspector: fleet",
    "Headroom, sessions that still fit, states, alerts and what is unknown, over all inspected servers.",
    False,
    {
        "Now": (
            Panel(
                "Targets watched",
                Kind.STAT,
                "short",
                (Query(f"count({fleet('inspector_polls_total')})", "watched"),),
                6,
                "Servers that the scraped inspectors are told to watch, or have found.",
                height=4,
            ),
            Panel(
                "Targets answering",
                Kind.STAT,
                "short",
                (Query(f"sum({fleet('inspector_target_up')})", "answering"),),
                6,
                "Servers that were recognized and answered the last poll. One whose last poll is too old counts as neither up nor down.",
                height=4,
            ),
            Panel(
                "Alerts firing",
                Kind.STAT,
                "short",
                (Query(f"sum by (severity) ({fleet_pool('inspector_alert_state', state='firing')})", "{{severity}}"),),
                6,
                "The inspector's own alerts that fire now, by severity. 0 means that they were evaluated and none fires.",
                steps=((0, GOOD), (1, BAD)),
                height=4,
            ),
            Panel(
                "Unknown fields",
                Kind.STAT,
                "short",
                (Query(f"sum(1 - {fleet_pool('inspector_field_known')})", "unknown"),),
                6,
                "Fields that the engines offer and that are unknown now, over all targets that are ready.",
                steps=((0, GOOD), (1, WARNING)),
                height=4,
            ),
            Panel(
                "Least headroom",
                Kind.BARS,
                "percentunit",
                (
                    Query(
                        f"min by (job, instance, target, resource) ({fleet_pool('inspector_headroom_ratio', bound='guaranteed')})",
                        "{{target}} {{resource}} ({{instance}})",
                    ),
                ),
                12,
                "The share of each resource that new work can surely still claim, in the pool that has least. A target without a bar has no known headroom.",
                steps=LOW_HEADROOM,
                top=1,
                height=10,
            ),
            Panel(
                "Sessions that still fit",
                Kind.BARS,
                "short",
                (Query(fleet_pool("inspector_session_headroom", bound="guaranteed"), "{{target}} {{pool}} {{session}} ({{instance}})"),),
                12,
                "How many more sessions of each configured shape surely fit now. Unknown as long as no session shape is configured.",
                steps=((0, BAD), (1, GOOD)),
                height=10,
            ),
        ),
        "Headroom": tuple(
            Panel(
                title,
                Kind.LINES,
                "percentunit",
                (Query(fleet_pool("inspector_headroom_ratio", resource=resource), WHERE + ": {{bound}}"),),
                12,
                description,
                steps=steps,
                top=1,
            )
            for resource, title, description, steps in (
                (
                    "kv",
                    "KV cache",
                    "The share of the KV cache that new work can still claim. Dashed: what is possible where the layout is not known.",
                    LOW_HEADROOM,
                ),
                ("memory", "Memory", "What is left below the memory ceiling, for servers on the inspector's machine.", LOW_HEADROOM),
                ("slots", "Slots", "The share of slots that are free. A full server is no fault until requests wait.", ()),
                (
                    "context",
                    "Context",
                    "What the fullest busy session has left of its context. A gap where none is busy, or where the engine shows no sessions.",
                    (),
                ),
            )
        ),
        "Sessions": (
            Panel(
                "Sessions that still fit",
                Kind.LINES,
                "short",
                (Query(fleet_pool("inspector_session_headroom"), "{{target}} {{pool}} {{session}} ({{instance}}): {{bound}}"),),
                12,
                "How many more sessions of each configured shape fit beside those that run, and beside what they may still grow to.",
            ),
            Panel(
                "Sessions that an empty server holds",
                Kind.LINES,
                "short",
                (Query(fleet_pool("inspector_session_capacity"), "{{target}} {{pool}} {{session}} ({{instance}}): {{bound}}"),),
                12,
                "The capacity that the figure beside it comes down from; it changes only when the server is started with other settings.",
            ),
        ),
        "States": (
            Panel(
                "State of each target",
                Kind.TIMELINE,
                "short",
                (Query(state_number(fleet("inspector_target_state"), STATES), "{{target}} ({{instance}})"),),
                24,
                "What each poll found. A gap is a time without a poll that is recent enough to be believed.",
                words=STATES,
            ),
            Panel(
                "Targets",
                Kind.TABLE,
                "short",
                (
                    Query(
                        f"{fleet('inspector_target_info')} * {SAME_TARGET} group_left (state) ({fleet('inspector_target_state')} == 1)",
                    ),
                ),
                12,
                "Engine, version and state. A version that the server does not tell is empty.",
                columns=("target", "engine", "version", "state", "instance"),
            ),
            Panel(
                "Models",
                Kind.TABLE,
                "short",
                (Query(f"{fleet_pool('inspector_pool_info')} * {SAME_TARGET} group_left (version) {fleet('inspector_target_info')}"),),
                12,
                "The model of each KV pool, where the server tells it.",
                columns=("target", "pool", "model", "engine", "version", "instance"),
            ),
        ),
        "Unknowns and alerts": (
            Panel(
                "What is unknown",
                Kind.TABLE,
                "short",
                (
                    Query(
                        f"{fleet_pool('inspector_field_known')} == 0 or min by (job, instance, engine, target) ({fleet_pool('inspector_field_known')}) == 1",
                    ),
                ),
                12,
                "Each field that the engine offers and that is unknown now; one line without a field for a target of which everything is known. "
                "`inspector explain NAME` tells the reason and the remedy.",
                words=KNOWN,
                columns=("target", "pool", "field", "Value", "engine", "instance"),
            ),
            Panel(
                "Alerts",
                Kind.TABLE,
                "short",
                (
                    Query(
                        f"{state_number(fleet_pool('inspector_alert_state'), {n: s for n, s in ALERT_STATES.items() if n > 1})} or "
                        f"min by (job, instance, engine, target) ({fleet_pool('inspector_alert_state', state='ok')}) == 1",
                    ),
                ),
                12,
                "Alerts that are not ok, the firing ones first; one line without a name for a target of which all alerts are ok.",
                words=ALERT_STATES,
                columns=("Value", "target", "alert", "severity", "pool", "resource", "session", "engine", "instance"),
            ),
            Panel(
                "Unknown fields of each target",
                Kind.LINES,
                "short",
                (Query(f"sum by (job, instance, target) (1 - {fleet_pool('inspector_field_known')})", "{{target}} ({{instance}})"),),
                12,
                "How many of the fields that the engine offers are unknown. A gap while the target is not ready: then nothing is expected.",
            ),
            Panel(
                "Alerts firing",
                Kind.LINES,
                "short",
                (Query(f"sum by (severity) ({fleet_pool('inspector_alert_state', state='firing')})", "{{severity}}"),),
                12,
                "The inspector's own alerts that fire, by severity.",
            ),
        ),
        "Inspectors": (
            Panel(
                "Versions",
                Kind.TABLE,
                "short",
                (Query('inspector_build_info{instance=~"$instance"}'),),
                12,
                "The inspectors that Prometheus scrapes.",
                columns=("instance", "version", "python"),
            ),
            Panel(
                "Failed polls",
                Kind.LINES,
                "cps",
                (Query(per_second(fleet("inspector_poll_failures_total")), "{{target}} {{reason}} ({{instance}})"),),
                6,
                "Polls that a server did not answer, by what was found instead.",
            ),
            Panel(
                "Failed tasks",
                Kind.LINES,
                "cps",
                (Query(per_second('inspector_task_failures_total{instance=~"$instance"}'), "{{instance}}"),),
                6,
                "Faults of the inspector itself, after which a target's task was started again. They deserve a report.",
            ),
        ),
    },
)
