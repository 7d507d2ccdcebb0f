"""Settings of trained policies: observations, actions and training."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from movlr_jax._util.parts import setting
from movlr_jax._util.resources import resource_dir
from movlr_jax._util.settings import group_of
from movlr_jax.errors import UserError

OBSERVED = ("qpos", "qvel", "act", "touch", "prev_action", "goal")
OBSERVABLE = (*OBSERVED, "gait", "joints")
ACTIONS = ("auto", "controls", "targets", "pd", "groups", "posture")
REFERENCE = "reference"  # as a teacher


@dataclass(frozen=True)
class PdConfig:
    """PD joint targets (MotionVL): p_d = p0 + beta a, tau = kp (p_d - p) - kd p', clipped to torque limits."""

    kp: float = setting(60.0, "N m/rad", above=0)
    kd: float = setting(2.0, "N m s/rad", least=0)
    beta: float = setting(0.5, "rad", above=0)


@dataclass(frozen=True)
class GroupsConfig:
    """DynSyn: muscles that move together share one action (He et al., 2024)."""

    count: int = setting(0, "number of groups; 0: the number with the best silhouette of the clustering", least=0)
    correction: float = setting(0.1, "bound of each muscle's correction of the group action", least=0)
    seconds: float = setting(60.0, "s of random excitation from which the groups are found", above=0)


@dataclass(frozen=True)
class PolicyConfig:
    """What a policy observes and commands, and its networks: what the file of a policy holds, too."""

    observe: tuple[str, ...] = setting(OBSERVED, f"any of {', '.join(OBSERVABLE)}", choices=OBSERVABLE)
    action: str = setting(
        "auto",
        "controls, targets (what a planner plans), pd, groups or posture; auto: targets where motors without servos "
        "drive limbs, else controls",
        choices=ACTIONS,
    )
    joints: tuple[str, ...] = setting(
        (), "action=posture: commanded joints, the others are held at their start angles; empty: all planned joints"
    )
    muscle_groups: tuple[int, ...] = setting(
        (), "action=groups: group 0, 1, ... of each muscle; empty: groups found by random excitation"
    )
    reach: str = setting(
        "fixed",
        "action=posture: `fixed` is z = z0 + beta a; with `limits`, beta is at most the way to the limit of the "
        "joint, so that no part of the actions lies beyond it",
        choices=("fixed", "limits"),
    )
    mirror: bool = setting(
        False, "treat left and right alike: policies and values of observations gait and joints, with joints in pairs"
    )
    hidden: tuple[int, ...] = setting((128, 128), "units of the layers of the policy")
    value_hidden: tuple[int, ...] = setting((128, 128), "units of the layers of the value")
    clip_observation: float = setting(10.0, "standard deviations", least=0)

    def check(self, where: str) -> None:
        if not self.observe or min((*self.hidden, *self.value_hidden), default=1) < 1:
            raise UserError(f"{where}: observe must not be empty, and hidden layers must have 1 or more units")


@dataclass(frozen=True)
class UpdateConfig:
    """The update of a policy from a batch."""

    minibatches: int = setting(4, "of a batch", least=1)
    epochs: int = setting(4, "per batch", least=1)
    learning_rate: float = setting(3e-4, "of Adam", above=0)
    target_kl: float = setting(
        0.0,
        "nats; 0: a constant learning rate. Else it is divided by 1.5 after a batch whose updates change the policy "
        "by more than twice this KL divergence, and multiplied by 1.5 if by less than half (Rudin et al., 2022)",
        least=0,
    )
    discount: float = setting(0.98, "per control step", least=0, most=1)
    gae_lambda: float = setting(0.95, "of generalised advantages", least=0, most=1)
    clip: float = setting(0.2, "of the ratio of probabilities", above=0)
    entropy: float = setting(1e-3, "weight of the entropy; below 0, the policy becomes less random")
    value_loss: float = setting(0.5, "weight of the value loss", least=0)
    max_grad_norm: float = setting(1.0, "0: no clipping", least=0)
    reward_scale: float = setting(1.0, "factor of rewards", above=0)
    normalise_returns: bool = setting(
        True, "divide rewards by the root mean square of their discounted returns, since w . r has an arbitrary scale"
    )
    noise: float = setting(
        0.0,
        "standard deviation of the first policy's actions before squashing; 0: Brax's default, or 0.3 where "
        "action=auto is targets",
        least=0,
    )


@dataclass(frozen=True)
class GuidanceConfig:
    """What helps a body that falls at once to learn a walk. It acts in training only."""

    teacher: str = setting(
        "",
        "what the first policy imitates before the training: a policy file, as for init, whose observations may "
        "differ, or `reference` for the recorded motion of the task (reference=...)",
    )
    teach_steps: int = setting(300_000, "control steps of imitation", least=1)
    assist: float = setting(
        0.0, "stiffness of springs that hold a hinged floating base upright, in units of M g h", least=0
    )
    carry: float = setting(
        0.0, "with assist: stiffness of springs that carry the base along at the goal velocity", least=0
    )
    stagger: bool = setting(
        False, "cut the first episodes at different times, so that batches do not consist of one part of the episodes"
    )
    stride_starts: float = setting(
        0.0, "further start states per start state, in the middle of strides of the recorded motion", least=0
    )
    motions: tuple[str, ...] = setting(
        (), "files of recorded episodes, or the run_dir of evaluate; the training also begins in the middle of them"
    )
    motion_starts: float = setting(1.0, "further start states per start state, from `motions`", least=0)


@dataclass(frozen=True)
class PpoConfig:
    """Proximal policy optimisation (Schulman et al., 2017), K trainings of equal size in one batch.

    The settings of its groups have no further name: `optimizer.ppo.clip` is `update.clip`.
    """

    env_steps: int = setting(400_000, "control steps of training per candidate", least=0)
    init: str = setting(
        "",
        "initial policy: policy_k00.npz of another training, or a policy of assets/policies; empty: random weights",
    )
    envs: int = setting(32, "simulations per candidate", least=1)
    unroll: int = setting(16, "control steps per segment; ended episodes restart between segments", least=1)
    unrolls: int = setting(8, "segments of every simulation per batch", least=1)
    starts: int = setting(32, "number of start states", least=1)
    train_dt: float = setting(
        0.0, "s, simulation step in training, with implicitfast; 0: sim_dt, as in evaluation", least=0
    )
    acts: str = setting(
        "mode", "evaluation episodes use the mode of the action distribution, or a sample", choices=("mode", "sample")
    )
    checkpoint_every: int = setting(10, "batches", least=1)
    policy: PolicyConfig = group_of(PolicyConfig)
    update: UpdateConfig = group_of(UpdateConfig)
    guidance: GuidanceConfig = group_of(GuidanceConfig)

    @property
    def batch(self) -> int:
        """Control steps per candidate and batch."""
        return self.envs * self.unroll * self.unrolls

    @property
    def batches(self) -> int:
        """Number of batches of the training."""
        return -(-self.env_steps // self.batch)

    def files(self) -> dict[str, str | tuple[str, ...]]:
        """Return the names of the files that the settings give, by the name of the setting."""
        given = {"init": self.init, "teacher": self.guidance.teacher, "motions": self.guidance.motions}
        return {f"ppo.{name}": file for name, file in given.items() if file not in ("", REFERENCE, ())}

    def check(self, where: str) -> None:
        """Raise UserError where a policy could not be trained with these settings."""
        init, teacher, minibatches = self.init, self.guidance.teacher, self.update.minibatches
        if self.env_steps < (0 if init else 1):
            raise UserError(
                f"{where}.env_steps={self.env_steps}: it must be 1 or more, or 0 for the policy of "
                f"{where}.init as it is"
            )
        if init and teacher:
            raise UserError(
                f"{where}.teacher={teacher} teaches a first policy, and {where}.init={init} has one already; leave "
                f"one of them empty ({where}.init=)"
            )
        if (self.envs * self.unrolls) % minibatches:
            raise UserError(
                f"{where}.minibatches={minibatches} does not divide the {self.envs * self.unrolls} pieces of a batch "
                f"(envs={self.envs} x unrolls={self.unrolls})"
            )


def file_hashes(files: Iterable[str | tuple[str, ...]]) -> list[str]:
    """Return the hashes of policies and recorded motions by their names, of those that are files."""
    names = [name for file in files for name in ((file,) if isinstance(file, str) else file)]
    paths = [path for name in names for path in motion_files((str(policy_path(name)),))]
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()]


def policy_path(name: str) -> Path:
    """Return the path of a policy: the one of that name in assets/policies, or else `name` itself."""
    built_in = resource_dir("assets") / "policies" / f"{name}.npz"
    return built_in if "\0" not in name and built_in.is_file() else Path(name)


def motion_files(motions: tuple[str, ...]) -> list[Path]:
    """Return the files that `motions` name; of a folder, the episodes of evaluate in it or below it."""
    return [
        file
        for path in map(Path, motions)
        for file in (sorted(path.rglob("*seed*.npz")) if path.is_dir() else [path])
    ]
