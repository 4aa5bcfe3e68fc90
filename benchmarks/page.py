"""docs/speed.md and its pictures, from the results alone.

python benchmarks/page.py
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from drawing import Line, draw
from shared import ROOT, median, read

NAMES = ("against_trl", "trl_sweep", "to_reward", "floor", "growth", "wide_head", "credit_share", "added_cost")
IMAGES = "img/speed"
# What we set out to reach: the highest ratio to TRL, by load and arm.
GOALS = {("nano", "ours"): 1 / 4, ("micro", "ours"): 1 / 3, ("nano", "ours, HF path"): 2 / 3}
GOALS |= {("micro", "ours, HF path"): 2 / 3}
LITTLE = 0.02  # of a step: what credit and loss may cost where no pass is needed
GAR, A_LOOK = 0.09, 1.1  # of a step, with old log-probs scored anew; of the policy's own pass
Results = Mapping[str, Any]


# ---- pieces of a page ------------------------------------------------------------------------------------------------
def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def prose(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120) + "\n"


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """The median, and from least to most where there are several."""
    mid = f"{median(values):{form}}"
    return mid if len(values) == 1 else f"{mid} ({min(values):{form}}–{max(values):{form}})"


def settings(told: Mapping[str, Any]) -> str:
    return ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in told.items())


def made_by(abouts: Sequence[Mapping[str, Any]]) -> str:
    """A line for each machine and commit. Quick runs are called what they are."""
    lines: dict[Any, str] = {}
    for a in abouts:
        versions = ", ".join(f"{k} {v}" for k, v in a.items() if k in ("python", "torch", "transformers") or "trl" in k)
        dirty = " and uncommitted changes" if a["uncommitted"] else ""
        line = (
            f"`{a['command']}`, {a['date']}, commit {a['commit']}{dirty}; {a['cpu']}, {a['cores']} cores, "
            f"{a['memory_gb']:g} GB, load average {a['load_average']:g}; {versions}."
            + " **A quick run: it shows that the benchmark works, and no number of it counts.**"
            * a["quick"]
        )
        lines.setdefault((a["command"], a["commit"], a["cpu"]), textwrap.fill(line, 120) + "\n")
    return "\n".join(lines.values())


def quick(told: Mapping[str, Any]) -> str:
    return " (quick)" if told["about"]["quick"] else ""


def mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"


# ---- sections --------------------------------------------------------------------------------------------------------
def headline(results: Results) -> str:
    """Every goal that was measured, and whether it is met."""
    rows = []
    for (load, arm), goal in GOALS.items():
        ratios = ratios_of(results, load, arm)
        if ratios:
            met = "yes" if median(ratios) <= goal else "no"
            mark = quick(results["against_trl"]["loads"][load])
            rows.append((f"CPU seconds a step, {arm} / TRL, {load}", spread(ratios) + mark, f"at most {goal:.2f}", met))
    for load, told in results.get("floor", {}).get("loads", {}).items():
        goal = "at least 50%" if load == "micro" else ""
        met = ("yes" if told["share"] >= 0.5 else "no") if goal else ""
        rows.append(
            (
                f"useful arithmetic over the matrix rate, {load}'s updates",
                f"{told['share']:.0%}{quick(told)}",
                goal,
                met,
            )
        )
    told = results.get("credit_share", {"methods": {}})
    plain = {k: m["share"] for k, m in told["methods"].items() if m.get("samples") and not m["passes"]}
    if plain:
        worst = max(plain, key=plain.__getitem__)
        met = "yes" if plain[worst] <= LITTLE else "no"
        name = f"credit and loss as a share of a step, the dearest method ({worst})"
        rows.append((name, f"{plain[worst]:.1%}{quick(told)}", f"at most {LITTLE:.0%}", met))
    rows += added_goals(results)
    return table(("what", "measured", "goal", "met"), rows) if rows else ""


def added_goals(results: Results) -> list[tuple[str, str, str, str]]:
    """What papers may add: those without a look, GAR, and of the others the dearest look."""
    told = results.get("added_cost", {"papers": {}})
    papers, rows = told["papers"], list[tuple[str, str, str, str]]()

    def goal(what: str, value: float, most: float, form: str) -> None:
        rows.append((what, f"{value:{form}}{quick(told)}", f"at most {most:{form}}", "yes" if value <= most else "no"))

    plain = {k: p["itself_share"] for k, p in papers.items() if not p["looks"]}
    looks = {k: p["a_look"] for k, p in papers.items() if p["looks"] and k != "gar"}
    if plain:
        worst = max(plain, key=plain.__getitem__)
        goal(f"what a paper without a look adds to a step, the dearest ({worst})", plain[worst], LITTLE, ".1%")
    if "gar" in papers:
        goal("what GAR adds to a step, old log-probs scored anew", papers["gar"]["added_anew"], GAR, ".1%")
    if looks:
        worst = max(looks, key=looks.__getitem__)
        goal(f"a look over the policy's own pass, the dearest ({worst})", looks[worst], A_LOOK, ".2f")
    return rows


def ratios_of(results: Results, load: str, arm: str) -> list[float]:
    pairs = results.get("against_trl", {}).get("loads", {}).get(load, {}).get("pairs", [])
    return [p[arm]["cpu"] / p["TRL"]["cpu"] for p in pairs if "cpu" in p.get(arm, {})]


def against(results: Results) -> str:
    loads = results["against_trl"]["loads"]
    out = [
        """## Against TRL

TRL's GRPOTrainer and our trainer make steps in turn, a few at a time, in processes of their own with one thread each:
whatever else the machine does meets both. Equal are the model's weights, the tasks, the verifier, group size, longest
answer, AdamW and its clipping, learning rate and warm-up, the token mean, and no KL. TRL has the micro-batch and the
generation settings that a sweep found best for it, no gradient checkpointing, and no logging. Ours has the defaults of
a recipe, and says otherwise where it has not. Two things are not quite equal: TRL's warm-up begins at a learning rate
of 0, ours at a tenth, so TRL is a step behind; and TRL divides by the standard deviation of a sample plus 1e-4, ours by
that of the group plus 1e-6. A step's cost is the median over a pair's steps after the first two, a ratio is of one
pair.
"""
    ]
    for name, told in loads.items():
        load, pairs = told["load"], told["pairs"]
        out.append(f"### {name}\n")
        out.append(
            prose(f"""{load["prompts"]} prompts x {load["group"]} answers of at most {load["max_tokens"]} tokens;
            updates a batch: {load["updates"]}; pairs: {len(pairs)}. TRL with {settings(told["trl"])}.""")
        )
        rows = []
        for arm in pairs[0]:
            done = [p[arm] for p in pairs if "cpu" in p.get(arm, {})]
            if not done:
                rows.append((arm, "not measured: " + pairs[0][arm]["failed"].replace("|", "/"), "", "", ""))
                continue
            sampling = [median(d["steps"]["stages/sample"][told["warm_up"] :]) for d in done]
            ratios = "" if arm == "TRL" else spread(ratios_of(results, name, arm))
            rows.append((arm, spread([d["cpu"] for d in done], ".3f"), f"{median(sampling):.3f}", ratios,
                         f"{median([d['startup'] for d in done]):.1f}"))  # fmt: skip
        out.append(table(("", "CPU-s a step", "of it sampling", "ratio to TRL", "start-up, CPU-s"), rows))
        out.append(f"![Reward by step, {name}]({image(name)})\n")
        out.append(made_by([told["about"]]))
    if sweep := results.get("trl_sweep"):
        rows = [
            (name, settings(case["settings"]), f"{case['cpu']:.3f}" if case["cpu"] else case.get("failed", "failed"))
            for name, told in sweep["loads"].items()
            for case in told["cases"]
        ]
        out.append(
            "### TRL's settings\n\nTried one after another; micro-batches first, the rest at the best of them.\n"
        )
        out.append(table(("load", "settings", "CPU-s a step"), rows))
    return "\n".join(out)


def to_reward(results: Results) -> str:
    told = results["to_reward"]
    rows = [
        (side, *(spread([r[k] for r in runs], form) for k, form in (("wall", ".1f"), ("cpu", ".1f"), ("steps", ".0f"))))
        for side, runs in told["runs"].items()
    ]
    return "\n".join((
        f"## From the command to reward {told['goal']:g}\n",
        prose(f"""On nano, in a fresh process, imports included: `rlvr train quickstart` without its evaluation, and a
        script around TRL. Ratio of wall seconds {told["ratio"]["wall"]:.2f}, of CPU seconds
        {told["ratio"]["cpu"]:.2f}."""),
        table(("", "wall seconds", "CPU seconds", "steps"), rows),
        made_by([told["about"]]),
    ))  # fmt: skip


def floor(results: Results) -> str:
    out = [
        """## How near to the floor

Useful is the arithmetic that an update cannot do without: each token once, a prompt once for all its answers, nothing
for rows that teach nothing; 6 operations a weight and token, attention besides. It is divided by the update's time, and
held against the rate at which this processor multiplies the model's own matrices for 2,048 tokens, measured between the
updates.
"""
    ]
    rows = [
        (name, f"{t['parameters'] / 1e6:.2f}M", f"{t['gemm_gflops']:.0f} GFLOP/s", f"{t['needed_of_row_tokens']:.0%}",
         f"{t['share']:.0%}")
        for name, t in results["floor"]["loads"].items()
    ]  # fmt: skip
    head = ("", "parameters", "matrix rate", "needed tokens of those in padded rows", "useful arithmetic / rate")
    out.append(table(head, rows))
    for name, told in results["floor"]["loads"].items():
        profile = told["profile"]
        out.append(f"Where an update of {name} spends the operators' time, and the operators that take most of it:\n")
        kinds = [(kind, f"{share:.1%}") for kind, share in profile["kinds"].items() if share > 0.0005]
        top = [(f"`{o['name'][:60]}`", f"{o['share']:.1%}", o["calls"]) for o in profile["operators"]]
        rows = [
            (*(kinds[i] if i < len(kinds) else ("", "")), *(top[i] if i < len(top) else ("", "", "")))
            for i in range(min(10, max(len(kinds), len(top))))
        ]
        out.append(table(("kind", "share", "operator", "share", "calls"), rows))
        out.append(made_by([told["about"]]))
    return "\n".join(out)


def growth(results: Results) -> str:
    told = results["growth"]
    base = told["base"]
    out = [
        "## How it grows\n",
        prose(f"""Random models of Qwen3's architecture, one size changed at a time from {base["layers"]} layers of
        width {base["hidden"]}, {base["vocab"]} tokens of vocabulary, {base["tasks"]} prompts of
        {base["prompt"]} tokens x {base["rollouts"]} answers of {base["new"]} tokens, micro-batches of
        {base["budget"]} tokens. Scoring is one pass over the batch. The exponents are fitted to the three
        largest cases: 1 is growth in proportion."""),
    ]
    keys = ("sample", "score", "update", "peak")
    rows = [(name, *(f"{t['exponents'][k]:.2f}" for k in keys)) for name, t in told["by"].items()]
    out.append(table(("by", "sampling", "scoring", "update", "peak memory"), rows))
    for name in told["by"]:
        out.append(
            f"![Time by {name}]({image('time by ' + name)})\n![Memory by {name}]({image('memory by ' + name)})\n"
        )
    out.append(made_by([t["about"] for t in told["by"].values()]))
    return "\n".join(out)


def wide_head(results: Results) -> str:
    told = results["wide_head"]
    logits = told["tokens"] * told["vocabulary"] * 4
    rows = []
    for way, t in told["ways"].items():
        largest = " x ".join(f"{n:,}" for n in t["largest_shape"]) if "largest_shape" in t else "tokens x vocabulary"
        cpu = f"{t['cpu']:.1f}" if "cpu" in t else ""
        rows.append((way, mib(t["peak"]), f"{told['ways']['ours']['peak'] / t['peak']:.2f}", largest, cpu))
    points = ", ".join(f"{mib(p['peak'])} with {p['tokens']:,}" for p in told["ways"]["naive"]["points"])
    return "\n".join((
        f"## A vocabulary of {told['vocabulary']:,}\n",
        prose(f"""Scoring and update of {told["tokens"]:,} tokens in one micro-batch of a small body; all their logits
        would be {mib(logits)}. A chunk of ours has {told["chunk_rows"]} rows of logits, forward and
        backward; the largest tensor was looked for among all that any operator returned, in a run with a
        quarter of the tokens. TRL's way is its own fused head. The naive way is measured with fewer tokens
        ({points}) and drawn on in a straight line. Ours includes the optimiser's step, the others end with
        the gradient."""),
        table(("", "peak memory", "ours / this", "largest tensor", "CPU-s"), rows),
        made_by([told["about"]]),
    ))  # fmt: skip


def credit_share(results: Results) -> str:
    told = results["credit_share"]
    rows = []
    for name, m in told["methods"].items():
        if "share" not in m:
            rows.append((name, "", m["not_measured"].replace("|", "/"), "", "", ""))
            continue
        times = [f"{1000 * m[k]:.2f}" for k in ("credit", "weigh", "loss")]
        rows.append((name, ", ".join(m["passes"]), f"{1000 * m['step']:.0f}", " + ".join(times), f"{m['share']:.2%}"))
    load = told["load"]
    return "\n".join((
        "## What the methods themselves cost\n",
        prose(f"""On {load["model"]}, {load["prompts"]} x {load["group"]}, {load["updates"]} updates a batch: rewards,
        advantages, bounds and weights, and the losses with their gradient down to the log-probs. Passes of
        a model that a method asks for are no part of it and stand in the second column. `sft` and `dpo`
        sample nothing, so that their step is itself a matter of milliseconds."""),
        table(("method", "passes it asks for", "step, CPU-ms", "credit + weights + loss, ms", "share"), rows),
        made_by([told["about"]]),
    ))  # fmt: skip


def added_cost(results: Results) -> str:
    told = results["added_cost"]
    share = lambda x: f"{x:.1%}"  # noqa: E731
    rows = [
        (name, f"{1000 * p['step']:.0f}", share(p["itself_share"]), p["looks"] or "",
         *((f"{p['a_look']:.2f}", f"{p['read']:.2f}", f"{p['a_look_bare']:.2f}") if p["looks"] else ("", "", "")),
         share(p["added_anew"]), share(p["added_reused"]))
        for name, p in told["papers"].items()
    ]  # fmt: skip
    head = ("paper", "step, CPU-ms", "itself", "looks", "a look / own pass", "tokens read / own", "looks / bare passes",
            "added, scored anew", "added, sampler's")  # fmt: skip
    return "\n".join((
        "## What papers and their looks add to a step\n",
        prose("""Each paper's toy recipe (32 x 8 answers of `mini`, four updates), CPU seconds, medians of one run. What
        a paper computes itself is its annotations, choice of tasks, credit and weights, and the losses where it sets
        one. A look is a pass of a model under a context; it is held against the policy's own pass over the step's rows
        (prompts that show something are longer: the tokens read, prompts that rows share once), and against passes over
        the same rows under the same prompts that give log-probs and nothing else. The last columns are all that a paper
        adds to the step without it: where old log-probs are scored anew, and where the sampler's stand for them.
        Teachers are of the policy's size here."""),
        table(head, rows),
        made_by([told["about"]]),
    ))  # fmt: skip


# ---- pictures --------------------------------------------------------------------------------------------------------
def image(name: str) -> str:
    return f"{IMAGES}-{name.replace(', ', '-').replace(' ', '-')}.svg"


def pictures(results: Results) -> dict[str, str]:
    """SVG by path under docs/."""
    out = {}
    for name, told in results.get("against_trl", {}).get("loads", {}).items():
        lines = []
        for color, arm in enumerate(("ours", "TRL")):
            made = [p[arm]["steps"] for p in told["pairs"]]
            lines += [Line("", s["step"], s["reward"], color, thin=True) for s in made] if len(made) > 1 else []
            mean = np.mean([s["reward"] for s in made], axis=0).tolist()
            lines.append(Line(arm, made[0]["step"], mean, color))
        out[image(name)] = draw(f"Reward by step, {name}", "step", lines)
    for name, told in results.get("growth", {}).get("by", {}).items():
        at = [c["at"] for c in told["cases"]]
        lines = [
            Line(f"{key} ^{told['exponents'][key]:.2f}", at, [c[key] for c in told["cases"]], i, marks=True)
            for i, key in enumerate(("sample", "score", "update"))
        ]
        out[image("time by " + name)] = draw("CPU seconds of a stage", name, lines, log=True)
        line = Line(
            f"peak ^{told['exponents']['peak']:.2f}", at, [c["peak"] / 2**20 for c in told["cases"]], marks=True
        )
        out[image("memory by " + name)] = draw("Peak memory, MiB", name, [line], log=True)
    return out


# ---- the page --------------------------------------------------------------------------------------------------------
SECTIONS = {
    "against_trl": against,
    "to_reward": to_reward,
    "floor": floor,
    "growth": growth,
    "wide_head": wide_head,
    "credit_share": credit_share,
    "added_cost": added_cost,
}
TITLE = """# Speed

Measured on a CPU, one thread, with `make bench` (`python benchmarks/page.py` makes this page from
[benchmarks/results](../benchmarks/results)). Trust the ratios of one run more than seconds; every section names its
machine.
"""


TRIED = """## What was tried

Measured by hand, each against the way before it in turns within one process, on 1 December 2026; no script of `make
bench` repeats it. Shares and seconds are of two machines: what is said of 80 GFLOP/s was an AMD EPYC, of 190 an Intel
Xeon.

- *Taken.* No padding, shared prompts computed once, rows that end before their last token: the quickstart fell from 58
  to 35 CPU seconds, start-up included. One thread for models under five million parameters: a second one made steps up
  to 60 times slower where the cores were busy. Tables of keys and values that are not filled with zeros, and have a
  quarter of slack: sampling nano's 512 answers fell from 0.12 to 0.10 CPU seconds. A norm whose backward pass is a
  matrix product in place of an einsum: less than half its time. In the last layer, of a prompt that rows share its last
  token alone: nothing that shows in an update of nano, whose prompts are short, but looks that show a solution fell
  from 1.12 to 1.05 of the policy's own pass. A group's sums taken together: credit of grpo from 1.3 to 1.0 ms.
- *Not taken: layers with derivatives by hand*, in chunks that stay in the second-level cache, a dozen fewer nodes a
  layer: 0.96 to 1.0 of an update's time on nano. Its matrix products and attention are four fifths of it, and neither
  gets faster.
- *Not taken: `torch.compile`* for the half of a layer with most elementwise work: 24 CPU seconds to compile, and then
  0.97 to 0.99 of the time. It would pay for itself after thousands of steps.
- *Not taken: other micro-batches*, 512, 1024 and 4096 tokens: 1.25, 1.08 and 1.19 times the time of 2048 on nano.
- *Not taken: attention by plain products* in place of the flash kernel: half the time forward and backward for 8 new
  tokens a row, 0.9 for 42, 1.1 for 64 and 1.2 for 128.

**Why the two goals against TRL are missed.** nano: at 80 GFLOP/s the goal left 0.21 CPU seconds for a step, and matrix
products took 0.10 of them, attention 0.06, verifying and packing 0.03. At 190 GFLOP/s it leaves 0.16, of which
products take 0.06, attention 0.03, verifying and packing 0.02; what is left for norms, activations, copies, the
optimiser and the records of 512 rows is 0.05, and they take 0.13. micro: the goal leaves 3.2 seconds. Its products
take 1.9 (at the rate of the machine), attention in updates 0.4, attention in sampling 0.7, where every step reads all
keys and values that 512 rows have, prompts sixteen times over; copies 0.3, all else 1.4. What could still be gained
most is there: reading a shared prompt once would save about 0.3 in micro and 0.01 in nano.

**HISPO's own arithmetic** is above 2 % of a step on nano alone, whose rows have a dozen tokens. Two things were tried:
peaks are held against the row's highest where the window holds the whole row, and the weights of segments are worked
out once for the weight and its metrics, which took a sixth off its credit. What is left are some 150 operators on a
few thousand numbers, of which the loss with its gradient is one half.
"""


def page(results: Results) -> str:
    """The page of whatever was measured, and of what was tried on the way."""
    measured = [make(results) for name, make in SECTIONS.items() if name in results]
    return "\n".join([TITLE, headline(results), *measured, TRIED])


def main() -> None:
    results = {name: told for name in NAMES if (told := read(name)) is not None}
    docs = ROOT / "docs"
    (docs / "speed.md").write_text(page(results))
    for path, svg in pictures(results).items():
        Path(docs / path).write_text(svg)


if __name__ == "__main__":
    main()
