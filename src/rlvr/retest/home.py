"""Where experiments lie and where their results go, and what git says of both.

experiments/NAME.toml                 the rule; committed before its first run
experiments/families.toml             which papers share Holm's adjustment
experiments/results/NAME.json         when it began, and what came out
experiments/results/runs/MARK.json    one finished run, whole or not there
runs/retest/MARK/                     the run's recipe and folder; never committed
"""

from __future__ import annotations

import difflib
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = "experiments"
NO_RULES = ("families",)  # tables there that are no experiments


class NoExperiment(ValueError):
    """There is no such experiment; the message says what there is."""


class NotCommitted(ValueError):
    """A rule that could still be changed is no rule."""


class NotWritable(ValueError):
    """What comes out could not be kept."""


@dataclass(frozen=True, slots=True)
class Home:
    """A checkout with experiments. `trial`: results are for trying out, and stay apart."""

    root: Path
    trial: bool = False

    @property
    def experiments(self) -> Path:
        return self.root / FOLDER

    @property
    def runs(self) -> Path:
        return self.root / "runs" / "retest"

    @property
    def results(self) -> Path:
        return self.runs / "trial" if self.trial else self.experiments / "results"

    @property
    def records(self) -> Path:
        return self.results / "runs"

    @property
    def page(self) -> Path:
        return self.root / "docs" / "papers.md"

    @property
    def pictures(self) -> Path:
        return self.root / "docs" / "img" / "papers"

    def names(self) -> list[str]:
        """Every experiment, the harness's own first, a revision behind what it revises."""
        first = ("null", "positive")
        found = sorted(file.stem for file in self.experiments.glob("*.toml") if file.stem not in NO_RULES)
        return [name for name in first if name in found] + [name for name in found if name not in first]

    def file(self, name: str) -> Path:
        return self.experiments / f"{name}.toml"


def refuse_unwritable(home: Home) -> None:
    """Raises NotWritable where runs could be made, and not be kept."""
    for folder in (home.records, home.runs):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise NotWritable(
                f"{folder} cannot be written ({error.strerror}), so no run could be kept; make it a folder of yours, "
                "or work in another checkout"
            ) from None


def find(name: str | None, trial: bool = False) -> tuple[Home, str | None]:
    """The checkout and the name of an experiment, by its name or by a path to its file. Raises NoExperiment."""
    if name is not None and (name.endswith(".toml") or "/" in name):
        file = Path(name).expanduser().resolve()
        if file.is_dir():
            raise NoExperiment(_is_folder(name))
        if not file.is_file():
            raise NoExperiment(f"there is no file {name}")
        if file.parent.name != FOLDER:
            raise NoExperiment(f"{name} does not lie in a folder {FOLDER}/, beside which its results would go")
        return Home(file.parent.parent, trial), file.stem
    home = Home(_checkout(), trial)
    if name is not None and name not in home.names():
        if Path(name).is_dir():
            raise NoExperiment(_is_folder(name))
        near = difflib.get_close_matches(name, home.names(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(home.names()) or 'none'}"
        raise NoExperiment(f"no experiment is called {name!r} in {home.experiments}; {hint}")
    return home, name


def _is_folder(name: str) -> str:
    """What is wanted in the place of a folder: one of its experiments."""
    inside = Path(name).expanduser().resolve()
    folder = inside if inside.name == FOLDER else inside / FOLDER
    there = Home(folder.parent).names()
    shown = f"{name.rstrip('/')}/" + ("" if folder == inside else f"{FOLDER}/")
    if not there:
        return f"{name} is a folder without experiments; give the name of one, or its file: {FOLDER}/NAME.toml"
    return (
        f"{name} is a folder; give one of its experiments, e.g. {shown}{there[0]}.toml ({', '.join(there)}), or --all"
    )


def _checkout() -> Path:
    """The folder around the present one that holds experiments/, or the checkout that this package is run from."""
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).parents[3]):
        if (folder / FOLDER).is_dir() and any((folder / FOLDER).glob("*.toml")):
            return folder
    raise NoExperiment(
        "experiments are files of a checkout, experiments/NAME.toml, and here is none; change into a checkout of rlvr, "
        "or give the path of an experiment's file"
    )


# ---- git -------------------------------------------------------------------------------------------------
def git(root: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output; where there is no git, 127 and nothing."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except OSError:
        return 127, ""
    return done.returncode, done.stdout.strip()


def refuse_uncommitted(root: Path, files: Sequence[Path]) -> None:
    """Raises NotCommitted where a file is not in the last commit as it is."""
    for file in files:
        name = str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
        if not file.is_relative_to(root) or git(root, "cat-file", "-e", f"HEAD:./{name}")[0]:
            raise NotCommitted(
                f"{name} is not committed, and a rule is committed before its first run; commit it, or try it out "
                "with --uncommitted, whose results stay apart"
            )
        if git(root, "diff", "--quiet", "HEAD", "--", name)[0]:
            raise NotCommitted(
                f"{name} differs from the last commit, and a rule is committed before its first run; commit it, or "
                "try it out with --uncommitted, whose results stay apart"
            )


def commit_of(root: Path) -> tuple[str, bool]:
    """The present commit, and whether code or recipes differ from it; "" and True where git does not say."""
    code, commit = git(root, "rev-parse", "--short=10", "HEAD")
    if code:
        return "", True
    return commit, bool(git(root, "status", "--porcelain", "--", "src", "recipes", FOLDER, ":!experiments/results")[1])
