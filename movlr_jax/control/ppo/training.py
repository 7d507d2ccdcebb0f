"""Records of a training: learning curves, checkpoints, TensorBoard events."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from movlr_jax._util.progress import uninterrupted
from movlr_jax._util.settings import plain
from movlr_jax.control.episode import by_candidate
from movlr_jax.control.ppo.config import PpoConfig, file_hashes
from movlr_jax.errors import UserError, shortened
from movlr_jax.rewards.program import RewardProgram, Scores


class CurveRecorder:
    """Learning curves of K trainings, with one point per batch.

    env_steps: control steps so far; reward: mean per control step; terms: the same for each weighted term;
    return: mean return of the episodes that ended in the batch; episode_s: their mean length in s (both None if no
    episode ended); terminated: number of them that the task ended; nonfinite: number of replaced term values;
    skipped: number of skipped updates; human_reward: mean per control step of the yardstick, if there is one.
    """

    def __init__(self, programs: Sequence[RewardProgram], batch: int, ctrl_dt: float):
        self.weights, self._batch, self._ctrl_dt = [p.weights for p in programs], batch, ctrl_dt
        self.curves: list[dict[str, Any]] = [
            {"env_steps": [], "terms": {name: [] for name in p.terms}} for p in programs
        ]
        self._clear()

    def _clear(self) -> None:
        self._returns: list[list[float]] = [[] for _ in self.curves]
        self._steps: list[list[int]] = [[] for _ in self.curves]
        self._falls = np.zeros(len(self.curves))

    @property
    def batches(self) -> int:
        """Number of recorded batches."""
        return len(self.curves[0]["env_steps"])

    def summary(self) -> str:
        """Return the progress of the trainings in words, from the last batch in which episodes ended."""
        steps = f"{self.curves[0]['env_steps'][-1]:,.0f} control steps"
        known = [[(s, r) for s, r in zip(c["episode_s"], c["return"], strict=True) if r is not None]
                 for c in self.curves]  # fmt: skip
        last = [points[-1] for points in known if points]
        if not last:
            return f"{steps}: no episode has ended yet"
        seconds, returns = (sorted(values) for values in zip(*last, strict=True))
        if len(last) == 1:
            return f"{steps}: episodes of {seconds[0]:.3g} s, return {returns[0]:.4g}"
        return (
            f"{steps}: episodes of {seconds[0]:.3g} to {seconds[-1]:.3g} s, "
            f"returns {returns[0]:.4g} to {returns[-1]:.4g}"
        )

    def ended(self, total: np.ndarray, steps: np.ndarray, ended: np.ndarray, terminated: np.ndarray) -> None:
        """Record the episodes that ended (`ended`), their returns and lengths, and which the task ended, each [B]."""
        k = len(self.curves)
        marks = (by_candidate(x, k) for x in (total, steps, ended, terminated))
        for i, (sums, lengths, over, fell) in enumerate(zip(*marks, strict=True)):
            self._returns[i] += sums[over].tolist()
            self._steps[i] += lengths[over].tolist()
            self._falls[i] += (over & fell).sum()

    def scored(self, scores: Scores, valid: np.ndarray, yardstick: Scores | None = None) -> None:
        """Record the scores of a batch, and those under the yardstick, restricted to `valid` [K, R, T]."""
        steps = (self.batches + 1) * self._batch
        for i, curve in enumerate(self.curves):
            count = max(int(valid[i].sum()), 1)
            for name, values in scores.terms[i].items():
                curve["terms"][name].append(_number(self.weights[i][name] * values[valid[i]].sum() / count))
            ends = self._returns[i]
            point = {
                "env_steps": steps,
                "reward": scores.totals[i][valid[i]].sum() / count,
                "return": np.mean(ends) if ends else math.nan,
                "episode_s": self._ctrl_dt * np.mean(self._steps[i]) if ends else math.nan,
                "terminated": self._falls[i],
                "nonfinite": sum(scores.nonfinite[i].values()),
            }
            if yardstick:
                point["human_reward"] = yardstick.totals[i][valid[i]].sum() / count
            for name, value in point.items():
                curve.setdefault(name, []).append(_number(value))
        self._clear()

    def learned(self, measures: Mapping[str, np.ndarray]) -> None:
        """Record the losses and other measures of an update, each [K]."""
        for name, values in measures.items():
            for curve, value in zip(self.curves, values, strict=True):
                curve.setdefault(name, []).append(_number(value))


class Training:
    """Checkpoints (orbax) and TensorBoard events of one training in `folder`; nothing is written if it is None.

    Ctrl-C waits for the end of a checkpoint, because threads of orbax would print tracebacks.
    """

    def __init__(self, folder: Path | None, programs: Sequence[RewardProgram], config: PpoConfig, key: jax.Array):
        self._manager, self._writers = None, []
        if folder is None:
            return
        from tensorboardX import SummaryWriter

        what = [[p.source for p in programs], plain(config), jax.random.key_data(key).tolist()]
        what += file_hashes(config.files().values())
        name = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]  # one folder per training
        options = ocp.CheckpointManagerOptions(max_to_keep=1, create=True, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager((folder / "checkpoints" / name).resolve(), options=options)
        # default names have a resolution of 1 s, so two writers could share a file
        suffix = f".{time.time_ns()}"
        self._writers = [
            SummaryWriter(str(folder / "tensorboard" / f"k{i:02d}"), flush_secs=10, filename_suffix=suffix)
            for i in range(len(programs))
        ]

    def close(self) -> None:
        if self._manager:
            self._manager.close()
        for writer in self._writers:
            writer.close()

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return self._manager is not None and self._manager.latest_step() is not None

    def restored(self, state: Any, recorder: CurveRecorder) -> Any:
        """Return the last checkpoint of this training and restore `recorder`; return `state` if there is none."""
        step = self._manager.latest_step() if self._manager else None
        if self._manager is None or step is None:
            return state
        leaves, tree = jax.tree.flatten(state)
        like = ocp.args.StandardRestore(_named(leaves))
        items = ocp.args.Composite(state=like, curves=ocp.args.JsonRestore())
        try:
            with uninterrupted():
                kept = self._manager.restore(step, args=items)
        except (ValueError, OSError, KeyError) as error:
            folder = self._manager.directory
            raise UserError(
                f"the checkpoint {folder / str(step)} cannot be read ({shortened(str(error))}); remove {folder} to "
                "train again from the start"
            ) from error
        recorder.curves = kept["curves"]
        return tree.unflatten([np.asarray(kept["state"].get(f"{i}", leaf)) for i, leaf in enumerate(leaves)])

    def save(self, batch: int, state: Any, recorder: CurveRecorder) -> None:
        if self._manager is None:
            return
        curves: Any = recorder.curves  # a list, which orbax accepts although its type hint is a mapping
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(_named(jax.tree.leaves(state))), curves=ocp.args.JsonSave(curves)
        )
        with uninterrupted():
            self._manager.save(batch, args=items)

    def write_events(self, recorder: CurveRecorder) -> None:
        """Write the last point of every curve as TensorBoard events."""
        for writer, curve in zip(self._writers, recorder.curves, strict=False):  # no writers without a folder
            at = curve["env_steps"][-1]
            flat = {f"terms/{n}": v for n, v in curve["terms"].items()}
            flat |= {f"training/{n}": v for n, v in curve.items() if n not in ("terms", "env_steps")}
            for name, values in flat.items():
                if values[-1] is not None:
                    writer.add_scalar(name, values[-1], at)


def _named(leaves: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return the arrays by index, without empty ones, which orbax rejects."""
    return {f"{i}": np.asarray(leaf) for i, leaf in enumerate(leaves) if np.size(leaf)}


def _number(value: Any) -> float | None:
    return float(f"{float(value):.6g}") if math.isfinite(value) else None
