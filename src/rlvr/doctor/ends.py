"""Do answers come to an end? A missing end token and a short max_tokens both cut every answer, and need other cures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rlvr.doctor.finding import Finding
from rlvr.doctor.patient import Patient
from rlvr.engine.renderer import control_tokens

MANY = 0.5  # ours: share of cut answers from which on most of the sampling is wasted


def no_end_token(patient: Patient) -> Iterator[Finding]:
    """Nothing tells the sampler to stop."""
    assert patient.setup is not None
    if not patient.setup.loaded.stop_ids:
        yield Finding(
            "end_missing",
            "wrong",
            f"The model {patient.setup.loaded.name} names no end-of-sequence token, in its configuration, its "
            "tokenizer or its chat template: every answer runs to max_tokens and counts as cut.",
            "Set eos_token_id in its generation_config.json, or eos_token in its tokenizer_config.json.",
        )


def cut_answers(patient: Patient) -> Iterator[Finding]:
    """Most answers hit the limit: because a control token that should end them does not, or because it is too low."""
    assert patient.setup is not None
    assert patient.played is not None
    sampled = [row for row in patient.played.rows if row.turns]
    cut = [row for row in sampled if row.truncated]
    if not patient.setup.loaded.stop_ids or len(cut) < MANY * max(1, len(sampled)):
        return
    stops = patient.setup.loaded.stop_ids
    control = {i: text for text, i in control_tokens(patient.setup.loaded.tokenizer).items() if i not in stops}
    seen = Counter(i for row in cut for i in set(row.ids[row.owned()].tolist()) & control.keys())
    token, times = max(seen.items(), key=lambda item: item[1], default=(-1, 0))
    if times >= MANY * len(cut):
        yield Finding(
            "end_ignored",
            "wrong",
            f"{times} of {len(cut)} cut answers hold the control token {control[token]!r} and were sampled on behind "
            "it: it is not among the tokens that end an answer.",
            f"Add its id {token} to eos_token_id in the model's generation_config.json.",
        )
        return
    limit = patient.recipe.max_tokens
    yield Finding(
        "all_truncated",
        "wrong" if len(cut) > 0.9 * len(sampled) else "warning",
        f"{len(cut)} of {len(sampled)} answers are cut at max_tokens = {limit}, so their ends, where answers stand, "
        "are missing.",
        f"Set max_tokens = {4 * limit} or more, or ask for shorter answers in `prompt`.",
    )
