"""Settings of trained policies: observations, actions and training."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from movlr_jax._util.resources import resource_dir
from movlr_jax.errors import UserError, unknown_name

OBSERVED = ("qpos", "qvel", "act", "touch", "prev_action", "goal")
OBSERVABLE = (*OBSERVED, "gait", "joints")
ABOUT = ("start", "present")
ACTIONS = ("auto", "controls", "pd", "groups", "posture")


ACTS = ("mode", "sample")
REACHES = ("fixed", "limits")
REFERENCE = "reference"  # as a teacher


@dataclass(frozen=True)
class PdConfig:
    """PD joint targets (MotionVL): p_d = p0 + beta a, tau = tau0 + kp (p_d - p) - kd p', clipped to torque limits."""

    kp: float = 60.0  # N m/rad
    kd: float = 2.0  # N m s/rad
    beta: float = 0.5  # rad
    about: str = "start"  # p0: the start posture, or the `present` one at each action
    feed_forward: bool = False  # tau0: the torques that hold the start posture; false: 0


@dataclass(frozen=True)
class GroupsConfig:
    """DynSyn: muscles that move together share one action (He et al., 2024)."""

    count: int = 0  # number of groups; 0: the number with the best silhouette of the clustering
    correction: float = 0.1  # bound of each muscle's correction of the group action
    seconds: float = 60.0  # s of random excitation from which the groups are found


@dataclass(frozen=True)
class PpoConfig:
    """Proximal policy optimisation (Schulman et al., 2017), K trainings of equal size in one batch."""

    env_steps: int = 400_000  # control steps of training per candidate
    # initial policy: the policy_k00.npz of another training, or a policy of assets/policies; empty: random weights
    init: str = ""
    envs: int = 32  # simulations per candidate
    unroll: int = 16  # control steps per segment; ended episodes restart between segments
    unrolls: int = 8  # segments of every simulation per batch
    minibatches: int = 4
    epochs: int = 4  # per batch
    learning_rate: float = 3e-4
    # nats; 0: a constant learning rate. Else it is divided by 1.5 after a batch whose updates change the policy by
    # more than twice this KL divergence, and multiplied by 1.5 if by less than half of it (Rudin et al., 2022)
    target_kl: float = 0.0
    discount: float = 0.98
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 1e-3
    value_loss: float = 0.5
    max_grad_norm: float = 1.0  # 0: no clipping
    reward_scale: float = 1.0
    # divide rewards by the root mean square of their discounted returns, since w . r has an arbitrary scale
    normalise_returns: bool = True
    clip_observation: float = 10.0  # standard deviations
    hidden: tuple[int, ...] = (128, 128)
    value_hidden: tuple[int, ...] = (128, 128)
    observe: tuple[str, ...] = OBSERVED
    action: str = "auto"  # auto: controls
    # action=posture: commanded joints, the others are held at their start angles; empty: all planned joints
    joints: tuple[str, ...] = ()
    # action=groups: group 0, 1, ... of each muscle; empty: groups found by random excitation
    muscle_groups: tuple[int, ...] = ()
    # treat left and right alike: policies and values of observations gait and joints, with joints in pairs
    mirror: bool = False
    # action=posture: `fixed` is z = z0 + beta a; with `limits`, beta is at most the way to the limit of the joint, so
    # that no part of the actions lies beyond it
    reach: str = "fixed"
    # what the first policy imitates before the training: a policy file, as for init, whose observations may differ,
    # or `reference` for the recorded motion of the task (reference=...)
    teacher: str = ""
    teach_steps: int = 300_000  # control steps of imitation
    acts: str = "mode"  # evaluation episodes use the mode of the action distribution, or a sample
    noise: float = 0.0  # standard deviation of the first policy's actions before squashing; 0: Brax's default
    # s, simulation step in training, with implicitfast; 0: sim_dt, as in evaluation
    train_dt: float = 0.0
    # stiffness of springs that hold a hinged floating base upright in training, in units of M g h
    assist: float = 0.0
    # with assist: stiffness of springs that carry the base along at the goal velocity, see `build.assisted`
    carry: float = 0.0
    # cut the first episodes at different times, so that batches do not consist of one part of the episodes
    stagger: bool = False
    starts: int = 32  # number of start states
    # further start states of the training per start state, in the middle of strides of the recorded motion
    stride_starts: float = 0.0
    # files of recorded episodes, or the run_dir of evaluate; the training also begins in the middle of them
    motions: tuple[str, ...] = ()
    motion_starts: float = 1.0  # further start states of the training per start state, from `motions`
    # episodes of the training begin on harder ground after one without a fall, on easier ground after a fall, if the
    # task has such ground (terrain curriculum; Rudin et al., 2022)
    curriculum: bool = False
    checkpoint_every: int = 10  # batches

    @property
    def batch(self) -> int:
        """Control steps per candidate and batch."""
        return self.envs * self.unroll * self.unrolls

    @property
    def batches(self) -> int:
        """Number of batches of the training."""
        return -(-self.env_steps // self.batch)

    def file_hashes(self) -> list[str]:
        """Return the hashes of the files that the settings name, which tell contents under one path apart."""
        paths = [policy_path(name) for name in (self.init, self.teacher)]
        paths += motion_files(self.motions)
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


def check_shape(p: PpoConfig) -> None:
    """Raise UserError if observations, actions or network sizes are invalid."""
    if not p.observe or min((*p.hidden, *p.value_hidden), default=1) < 1:
        raise UserError(
            "optimizer.ppo: observe must not be empty, and hidden layers must have 1 or more units"
        )
    for name, values, choices in (("observe", p.observe, OBSERVABLE), ("action", (p.action,), ACTIONS)):
        for value in values:
            if value not in choices:
                raise UserError(unknown_name(f"optimizer.ppo.{name}", value, choices))
    if p.reach not in REACHES:
        raise UserError(unknown_name("optimizer.ppo.reach", p.reach, REACHES))
    if p.clip_observation < 0:
        raise UserError(f"optimizer.ppo.clip_observation={p.clip_observation:g}: it must be 0 or more")


@dataclass(frozen=True)
class PriorConfig:
    """A trained policy, or a recorded stride, to whose actions the plans of a planner are added."""

    # path of a policy_k00.npz, a policy of assets/policies, or reference: the recorded stride; empty: none
    policy: str = ""
