"""A traced reward as a document and back: the same bits, and every JAX transformation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax.rewards import shaping
from movlr_jax.sandbox import facade, graph
from movlr_jax.sandbox.codec import encode
from movlr_jax.sandbox.graph import read, run
from movlr_jax.sandbox.jaxprs import scan_params
from movlr_jax.sandbox.primitives import TABLE, known

V = jax.core.ShapedArray((3,), jnp.dtype("float32"))
M = jax.core.ShapedArray((3, 3), jnp.dtype("float32"))
S = jax.core.ShapedArray((), jnp.dtype("float32"))
lax = jax.lax


def total(function: Callable[..., Any]) -> Callable[..., list[jax.Array]]:
    """A function whose result, whatever it is, becomes one float32, as terms are."""

    def one(*xs: Any) -> list[jax.Array]:
        leaves = [jnp.sum(jnp.asarray(leaf, jnp.float32)) for leaf in jax.tree.leaves(function(*xs))]
        return [jnp.sum(jnp.stack(leaves))]

    return one


def there_and_back(function: Callable[..., Any], *shapes: Any) -> graph.Graph:
    closed = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes))
    return read(json.dumps(encode(closed, ["a"])), ["a"], list(shapes))


def same_bits(function: Callable[..., Any], *shapes: Any) -> None:
    rebuilt = there_and_back(function, *shapes)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(16, *s.shape)).astype(np.float32) for s in shapes]
    native = jax.jit(jax.vmap(function))(*values)[0]
    ours = jax.jit(jax.vmap(lambda *xs: run(rebuilt, xs)))(*values)[0]
    np.testing.assert_array_equal(np.asarray(native).view(np.int32), np.asarray(ours).view(np.int32))


# Arguments that each function of the facade can be called with; others take one of `_TRIED`.
_TRIED = ((V,), (V, V), (V, V, V), (M,), (M, M), (S,), (S, S))
CALLS: dict[str, Callable[..., Any]] = {
    "jnp.arange": lambda x: jnp.arange(5) * x[0],
    "jnp.array": lambda x: jnp.array([x[0], 1.0, 2]) + jnp.array(x),
    "jnp.broadcast_to": lambda x: jnp.broadcast_to(x, (2, 3)),
    "jnp.einsum": lambda x: jnp.einsum("i,i->", x, x),
    "jnp.expand_dims": lambda x: jnp.expand_dims(x, 0),
    "jnp.eye": lambda x: jnp.eye(3) @ x,
    "jnp.full": lambda x: jnp.full((3,), 2.0) * x,
    "jnp.ones": lambda x: jnp.ones(3) * x,
    "jnp.repeat": lambda x: jnp.repeat(x, 2),
    "jnp.reshape": lambda x: jnp.reshape(x, (3, 1)),
    "jnp.select": lambda x: jnp.select([x > 0, x < 0], [x, -x], 0.0),
    "jnp.split": lambda x: jnp.split(x, 3),
    "jnp.swapaxes": lambda x: jnp.swapaxes(x[None], 0, 1),
    "jnp.take": lambda x: jnp.take(x, jnp.array([0, 2])) + x[jnp.argmin(x)],
    "jnp.tile": lambda x: jnp.tile(x, 2),
    "jnp.zeros": lambda x: jnp.zeros(3) + x,
    "jnp.linalg.det": lambda x: jnp.linalg.det(jnp.outer(x, x) + jnp.eye(3)),
    "lax.cond": lambda x: lax.cond(x[0] > 0, lambda: x, lambda: -x),
    "lax.fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, c: c * 0.5 + x[i], 0.0),
    "lax.scan": lambda x: lax.scan(lambda c, a: (c + a, c * a), 0.0, x),
    "lax.select": lambda x: lax.select(x > 0, x, -x),
}
OPERATORS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x: x**2 + x**0.5 + 2.0**x + x**-1 + x % 2 + x // 0.3 - (-x) / 3 + abs(x),
    "powers": lambda x: x ** jnp.arange(3) + (x.astype(int) << 1) + (x.astype(int) >> 1),
    "logic": lambda x: ((x > 0) & (x < 1)) | ~(x >= 2) ^ (x != 0.5) | (x == 0.1) | (x <= 0.2),
    "slices": lambda x: (x[::-1][-1], x[1:], x[None], x[..., 0], x[jnp.array([1, 0])], list(x)),
    "updates": lambda x: x.at[0].set(1.0).at[1].add(2.0).at[2].multiply(3.0).at[0].min(3.0).at[1].max(0.0),
    "methods": lambda x: (
        x.mean(),
        x.max(),
        x.min(),
        x.prod(),
        x.std(),
        x.T,
        x.flatten(),
        x.argmax(),
        x.dot(x),
    ),
    "matrices": lambda x: (jnp.outer(x, x) @ x, jnp.outer(x, x).T, jnp.linalg.norm(jnp.outer(x, x), axis=0)),
    "norms": lambda x: (
        jnp.linalg.norm(x, ord=1),
        jnp.linalg.norm(x, ord=jnp.inf),
        jnp.linalg.norm(x, axis=-1),
    ),
    "cumulative": lambda x: (jnp.cumsum(x), jnp.diff(x), jnp.roll(x, 1), jnp.sort(x), jnp.argsort(x)),
    "gelu": lambda x: (jax.nn.gelu(x, approximate=False), jax.nn.softmax(x), jax.nn.logsumexp(x)),
    "dynamic": lambda x: lax.dynamic_slice(x, (jnp.argmax(x),), (2,)) if hasattr(lax, "dynamic_slice") else x,
    "nested": lambda x: lax.fori_loop(
        0, 2, lambda i, c: lax.fori_loop(0, 2, lambda j, d: d + x[j] * i, c), 0.0
    ),
    "constants": lambda x: x * jnp.asarray(np.linspace(0, 1, 3, dtype=np.float32)) + np.float32(0.1) + 3,
    "nan": lambda x: (jnp.nan_to_num(jnp.log(x)), jnp.log(x), jnp.inf * x),
}
NOT_FUNCTIONS = {"jnp.linalg", "jnp.newaxis", "jnp.pi", "jnp.e", "jnp.inf"}


def offered() -> dict[str, Any]:
    scope = facade.facade()
    places = {
        "jnp": scope["jnp"],
        "jnp.linalg": scope["jnp"].linalg,
        "jax.nn": scope["jax"].nn,
        "lax": scope["lax"],
    }
    places["shaping"] = scope["shaping"]
    return {f"{place}.{n}": f for place, names in places.items() for n, f in vars(names).items()}


@pytest.mark.parametrize("name", [n for n in offered() if n not in NOT_FUNCTIONS])
def test_everything_a_program_may_call_survives(name: str):
    """Each function of the facade, on the first arguments it takes: traced, written, read, the same when run."""
    function = offered()[name]
    attempts = [((V,), CALLS[name])] if name in CALLS else [(shapes, function) for shapes in _TRIED]
    worked = 0
    for shapes, call in attempts:
        structs = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes]
        try:
            jax.eval_shape(call, *structs)
        except (TypeError, ValueError, IndexError, NotImplementedError):
            continue
        there_and_back(total(call), *shapes)
        worked += 1
    assert worked, "no arguments of the test fit this function: name some in CALLS"
    assert name in CALLS or worked


def test_the_facade_has_all_it_names():
    """What a version of JAX drops is missed here, and not by a program."""
    found = {n.rpartition(".")[2] for n in offered()}
    wanted = {*facade.JNP, *facade.LINALG, *facade.NN, *facade.LAX, *shaping.PUBLIC}
    assert wanted - found == set()
    newer = set() if jax.__version_info__ >= (0, 11) else {"log2", "unstack"}
    assert set(TABLE) - set(known()) - {"split", "stack", "tile", "square"} == newer


def test_a_scan_says_how_many_operands_are_constants_and_carried():
    """Its parameters changed in JAX 0.11; this runs on every version that is supported."""

    def loop(x: jax.Array) -> Any:
        a, b = x[0] + 1.0, x[1] * 2.0
        return lax.scan(lambda c, v: ((c[0] + a * v, c[1] - b, c[2] + 1), v * a), (a, b, 0), x)

    equations = jax.make_jaxpr(loop)(jnp.zeros(3)).jaxpr.eqns
    (scan,) = (e for e in equations if e.primitive.name == "scan")
    params = scan_params(scan.params)
    assert (params["num_consts"], params["num_carry"], params["length"]) == (2, 3, 3)
    assert len(scan.invars) == 2 + 3 + 1


@pytest.mark.parametrize("name", [*OPERATORS, *(f"call {n}" for n in CALLS)])
def test_values_are_the_same_bit_by_bit(name: str):
    function = OPERATORS.get(name) or CALLS[name.removeprefix("call ")]
    same_bits(total(function), V)


def test_gradients_and_loops_of_a_rebuilt_function():
    """Gradients where a function has its own (relu at 0, a stable softplus), scan over it, and jit."""

    def native(x: jax.Array) -> list[jax.Array]:
        return [
            jnp.sum(jax.nn.relu(x) + jax.nn.softplus(x) + jax.nn.silu(x) + shaping.tolerance(x) + jnp.sinc(x))
        ]

    rebuilt = there_and_back(native, V)
    for x in (np.float32([0.0, -100.0, 3.0]), np.float32([0.5, 0.0, 90.0])):
        slopes = [
            np.asarray(jax.grad(lambda v, f=f: f(v)[0])(x)) for f in (native, lambda v: run(rebuilt, [v]))
        ]
        np.testing.assert_array_equal(*slopes)
        assert np.isfinite(slopes[0]).all()
    many = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    step = jax.jit(lambda xs: lax.scan(lambda c, x: (c + run(rebuilt, [x])[0], 0), jnp.float32(0), xs)[0])
    np.testing.assert_allclose(step(many), sum(float(native(x)[0]) for x in many), rtol=1e-5)
