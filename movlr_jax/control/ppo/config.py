"""Settings of policies that are trained: what they see, what they command, how they learn."""

from __future__ import annotations

from dataclasses import dataclass

from movlr_jax.errors import UserError, unknown_name

OBSERVED = ("qpos", "qvel", "act", "touch", "prev_action", "goal")
OBSERVABLE = (*OBSERVED, "gait", "joints")
ACTIONS = ("auto", "controls", "pd", "groups", "posture")


ACTS = ("mode", "sample")


@dataclass(frozen=True)
class PdConfig:
    """Joint targets: p_d = p0 + beta a, tau = kp (p_d - p) - kd p', clipped to the torque limits (MotionVL)."""

    kp: float = 60.0  # N m/rad
    kd: float = 2.0  # N m s/rad
    beta: float = 0.5  # rad


@dataclass(frozen=True)
class GroupsConfig:
    """DynSyn: muscles that move together share one action (He et al., 2024)."""

    count: int = 0  # how many; 0: as many as the silhouette of the clustering asks for
    correction: float = 0.1  # bound of each muscle's own action beside its group's
    seconds: float = 60.0  # s, of random excitation that muscles are watched under


@dataclass(frozen=True)
class PpoConfig:
    """Proximal policy optimisation (Schulman et al., 2017), K trainings of the same sizes in one batch."""

    env_steps: int = 400_000  # control steps of each candidate's training
    # where a training begins: a policy_k00.npz that another has left, or a policy of assets/policies; empty: nowhere
    init: str = ""
    envs: int = 32  # simulations of each candidate
    unroll: int = 16  # control steps between two looks at who has ended; the loss is over such pieces
    unrolls: int = 8  # of every simulation, for one batch of data
    minibatches: int = 4
    epochs: int = 4  # over each batch
    learning_rate: float = 3e-4
    discount: float = 0.98
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 1e-3
    value_loss: float = 0.5
    max_grad_norm: float = 1.0  # 0: not clipped
    reward_scale: float = 1.0
    # rewards in units of the root mean square of their discounted returns: w . r has no unit of its own
    normalise_returns: bool = True
    clip_observation: float = 10.0  # standard deviations
    hidden: tuple[int, ...] = (128, 128)
    value_hidden: tuple[int, ...] = (128, 128)
    observe: tuple[str, ...] = OBSERVED
    action: str = "auto"  # auto: controls
    # that a posture commands, the others are held where they start; empty: all that are planned
    joints: tuple[str, ...] = ()
    # a policy of other observations, as of init, whose actions the first policy is taught before it trains
    teacher: str = ""
    teach_steps: int = 300_000  # control steps that it is watched for
    acts: str = (
        "mode"  # how a trained policy acts in episodes: by the mode of its distribution, or a sample of it
    )
    noise: float = (
        0.0  # spread of the first policy's actions around 0, before they are bounded; 0: Brax's own
    )
    # s, step of the simulation that policies are trained in, with implicitfast; 0: sim_dt, as episodes are evaluated
    train_dt: float = 0.0
    # springs that hold a floating base of hinges upright in training, in units of what makes it topple (M g h)
    assist: float = 0.0
    starts: int = 32  # start states that episodes begin from
    checkpoint_every: int = 10  # batches

    @property
    def batch(self) -> int:
        """Control steps of one candidate in one batch."""
        return self.envs * self.unroll * self.unrolls

    @property
    def batches(self) -> int:
        """Of the whole training."""
        return -(-self.env_steps // self.batch)


def check_shape(p: PpoConfig) -> None:
    """Raises UserError where there is no policy that sees, commands and consists of what is set."""
    if not p.observe or min((*p.hidden, *p.value_hidden), default=1) < 1:
        raise UserError("optimizer.ppo: observe must name something, and hidden layers are 1 or more wide")
    for name, values, choices in (("observe", p.observe, OBSERVABLE), ("action", (p.action,), ACTIONS)):
        for value in values:
            if value not in choices:
                raise UserError(unknown_name(f"optimizer.ppo.{name}", value, choices))
    if p.clip_observation < 0:
        raise UserError(f"optimizer.ppo.clip_observation={p.clip_observation:g}: it must be 0 or more")


@dataclass(frozen=True)
class PriorConfig:
    """A trained policy that a planner's plans are added to."""

    policy: str = ""  # a policy_k00.npz, or one of assets/policies; empty: none
