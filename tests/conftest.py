"""What most tests stand on: the tiny muscle leg, ready to step, and folders where commands may make mistakes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from movlr_jax.engine.environment import prepare_environment, prepare_physics

# What one test compiles, no other compiles again, here or in a process of its own; gone when the tests end, unless
# the folder is set. Workers of xdist share the folder of the process that starts them.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILED = tempfile.TemporaryDirectory(prefix="movlr-jax-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
STATE = tempfile.TemporaryDirectory(prefix="movlr-jax-state-")  # what the tests begin, they began here
os.environ["XDG_STATE_HOME"] = STATE.name
prepare_environment()  # as the commands do, before JAX starts
prepare_physics("mjx")

import jax  # noqa: E402
import mujoco  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from cli_cases import PLAIN, Main, Mistake  # noqa: E402

from movlr_jax.errors import MissingModel  # noqa: E402
from movlr_jax.models import MODELS, ModelAdapter, model_adapter  # noqa: E402
from movlr_jax.models.download import SWITCH, unreachable  # noqa: E402
from movlr_jax.physics.native import NativePhysics  # noqa: E402
from movlr_jax.rewards.state import Layout, instrument, layout_of  # noqa: E402
from movlr_jax.sandbox.probe import Probe  # noqa: E402

MODEL_SERVER = "https://github.com"  # of MS-Human-700 and the ostrich
NO_MODEL = pytest.StashKey[str]()  # why models cannot be downloaded


def pytest_configure(config: pytest.Config) -> None:
    """Look for the network once in a run of the tests, if a model is not here; workers inherit the answer."""
    if hasattr(config, "workerinput") or all(adapter.here for adapter in MODELS.values()):
        return
    config.stash[NO_MODEL] = unreachable(MODEL_SERVER, seconds=4.0)
    if config.stash[NO_MODEL]:
        os.environ[SWITCH] = "off"


@contextlib.contextmanager
def skipped_without_model() -> Iterator[None]:
    try:
        yield
    except MissingModel as error:
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with skipped_without_model():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with skipped_without_model():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    count = sum("cannot be downloaded" in reason for reason in skipped)
    if count:
        terminalreporter.write_line(
            f"{count} skipped, because MS-Human-700 or the ostrich is not on this machine and cannot be "
            f"downloaded ({config.stash.get(NO_MODEL, '')}); set MENAGERIE_ROOT to a folder that contains "
            "ms_human_700/ of github.com/google-deepmind/mujoco_menagerie and ostrich/, which is "
            "ostrichrl/assets/models/ostrich of github.com/vittorione94/ostrichrl."
        )


GOALS = {"height": np.float32(0.85), "foot_pos": np.array([0.1, 0.0, 0.0], np.float32)}


@dataclass(frozen=True)
class Tiny:
    """One compiled model and everything made from it."""

    adapter: ModelAdapter
    model: mujoco.MjModel
    layout: Layout
    physics: NativePhysics  # sim_dt 2 ms, ctrl_dt 10 ms
    goals: dict[str, np.ndarray]

    def states(self, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """qpos [rows, nq], qvel [rows, nv], act [rows, na]: in the joint ranges, moving, the foot near the floor."""
        rng = np.random.default_rng(seed)
        hip, knee = rng.uniform(-0.2, 1.0, rows), rng.uniform(0.1, 1.5, rows)
        # keeps the foot where the straight leg has it
        drop = 0.43 * (np.cos(hip) + np.cos(hip - knee)) - 0.86
        height = drop + rng.uniform(-0.01, 0.005, rows)
        return (
            np.stack([height, hip, knee], axis=1),
            rng.uniform(-0.5, 0.5, (rows, self.model.nv)),
            rng.uniform(0.0, 1.0, (rows, self.model.na)),
        )


@pytest.fixture(scope="session")
def tiny() -> Iterator[Tiny]:
    adapter = model_adapter("tiny_muscle")
    spec = adapter.load()
    instrument(spec, root=adapter.root, touch=adapter.touch, sites=adapter.sites)
    model = spec.compile()
    layout = layout_of(model, GOALS)
    physics = NativePhysics(model, layout, sim_dt=0.002, ctrl_dt=0.01, threads=2)
    yield Tiny(adapter, model, layout, physics, GOALS)
    physics.close()


@pytest.fixture(scope="session")
def probe(tiny: Tiny) -> Probe:
    """Six steps of four simulations under random controls."""
    start = tiny.physics.start(*tiny.states(4))
    controls = np.random.default_rng(0).uniform(0, 1, (4, tiny.model.nu)).astype(np.float32)
    rollout = tiny.physics.rollout(start, lambda p, view, key: p, controls, steps=6, key=jax.random.key(0))
    return Probe(tiny.layout, tiny.goals, *jax.tree.map(np.asarray, (rollout.steps, rollout.actions, start.step)))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A test works in a folder of its own: what it does not name lands there, or nowhere."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole search, small as can be, that asks for nothing beyond its run directory; tests take copies."""
    from movlr_jax.cli.search import main as search

    run = tmp_path_factory.mktemp("search") / "run"
    assert search([*PLAIN, f"run_dir={run}"]) == 0
    return run


@pytest.fixture
def run(finished: Path, elsewhere: Path) -> Path:
    """A copy of it in the folder of the test."""
    return Path(shutil.copytree(finished, elsewhere / "run"))


@pytest.fixture
def mistake(capfd: pytest.CaptureFixture[str]) -> Mistake:
    """Runs a command in this process; returns what it complained of, in one line, and checks its status."""

    def run(command: Main, *arguments: str, alone: bool = True) -> str:
        capfd.readouterr()
        assert command(list(arguments)) == 2
        said = capfd.readouterr().err
        assert "Traceback" not in said
        assert "Error:" not in said
        lines = said.strip().splitlines()
        if alone:
            assert len(lines) == 1, said
        return lines[-1]

    return run
