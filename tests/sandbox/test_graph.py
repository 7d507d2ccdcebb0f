"""A traced reward as a document and back: the same bits, and every JAX transformation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax.errors import ProgramError
from movlr_jax.rewards import shaping
from movlr_jax.sandbox import facade, graph
from movlr_jax.sandbox.codec import encode, is_copy, scan_params
from movlr_jax.sandbox.graph import read, run
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


def there_and_back(function: Callable[..., Any], *shapes: Any, terms: Sequence[str] = ("a",)) -> graph.Graph:
    closed = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes))
    return read(json.dumps(encode(closed, list(terms))), terms, list(shapes))


def same_bits(function: Callable[..., Any], terms: Sequence[str] = ("a",)) -> None:
    """The terms of a function of a vector, computed from its document, are those that JAX computes."""
    rebuilt = there_and_back(function, V, terms=terms)
    values = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    native = jax.jit(jax.vmap(function))(values)
    ours = jax.jit(jax.vmap(lambda x: run(rebuilt, [x])))(values)
    for term, theirs, value in zip(terms, native, ours, strict=True):
        np.testing.assert_array_equal(np.asarray(theirs).view(np.int32), np.asarray(value).view(np.int32), term)


# Arguments that each function of the facade can be called with; others take one of `_TRIED`.
_TRIED = ((V,), (V, V), (V, V, V), (M,), (M, M), (S,), (S, S))
CALLS: dict[str, Callable[..., Any]] = {
    "jnp.apply_along_axis": lambda x: jnp.apply_along_axis(jnp.sum, 0, jnp.outer(x, x)),
    "jnp.arange": lambda x: jnp.arange(5) * x[0],
    "jnp.bincount": lambda x: jnp.bincount(jnp.array([0, 2, 2]), length=3) * x,
    "jnp.bitwise_and": lambda x: jnp.bitwise_and(x > 0, x < 1),
    "jnp.bitwise_not": lambda x: jnp.bitwise_not(x > 0),
    "jnp.bitwise_or": lambda x: jnp.bitwise_or(x > 0, x < -1),
    "jnp.bitwise_xor": lambda x: jnp.bitwise_xor(x > 0, x < 1),
    "jnp.diag_indices": lambda x: jnp.outer(x, x)[jnp.diag_indices(3)],
    "jnp.left_shift": lambda x: jnp.left_shift(x.astype(int), 1),
    "jnp.right_shift": lambda x: jnp.right_shift(x.astype(int), 1),
    "jnp.rollaxis": lambda x: jnp.rollaxis(x[None], 1),
    "jnp.einsum": lambda x: jnp.einsum("i,i->", x, x),
    "jnp.empty": lambda x: facade.facade()["jnp"].empty(3) + x,
    "jnp.eye": lambda x: jnp.eye(3) @ x,
    "jnp.finfo": lambda x: x + jnp.finfo(jnp.float32).eps,
    "jnp.full": lambda x: jnp.full((3,), 2.0) * x,
    "jnp.gradient": lambda x: jnp.gradient(x),
    "jnp.identity": lambda x: jnp.identity(3) @ x,
    "jnp.interp": lambda x: jnp.interp(x, jnp.array([-1.0, 0.0, 1.0]), jnp.array([1.0, 0.0, 3.0])),
    "jnp.invert": lambda x: jnp.invert(x > 0),
    "jnp.moveaxis": lambda x: jnp.moveaxis(x[None], 0, 1),
    "jnp.ones": lambda x: jnp.ones(3) * x,
    "jnp.permute_dims": lambda x: jnp.permute_dims(x[None], (1, 0)),
    "jnp.piecewise": lambda x: jnp.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: 2 * v]),
    "jnp.shape": lambda x: x * jnp.shape(x)[0],
    "jnp.swapaxes": lambda x: jnp.swapaxes(x[None], 0, 1),
    "jnp.take": lambda x: jnp.take(x, jnp.array([0, 2])) + x[jnp.argmin(x)],
    "jnp.take_along_axis": lambda x: jnp.take_along_axis(x, jnp.argsort(x), 0),
    "jnp.tri": lambda x: jnp.tri(3) @ x,
    "jnp.tril_indices": lambda x: x[jnp.tril_indices(3)[0]],
    "jnp.triu_indices": lambda x: x[jnp.triu_indices(3)[1]],
    "jnp.vsplit": lambda x: jnp.vsplit(x[:, None], 3),
    "jnp.zeros": lambda x: jnp.zeros(3) + x,
    "jnp.linalg.det": lambda x: jnp.linalg.det(jnp.outer(x, x) + jnp.eye(3)),
    "jnp.linalg.matrix_power": lambda x: jnp.linalg.matrix_power(jnp.outer(x, x), 3),
    "jnp.linalg.multi_dot": lambda x: jnp.linalg.multi_dot([jnp.outer(x, x), x]),
    "jax.nn.glu": lambda x: jax.nn.glu(jnp.concatenate([x, x])),
    "jax.nn.one_hot": lambda x: jax.nn.one_hot(jnp.argmax(x), 3),
    "jax.tree.all": lambda x: x if jax.tree.all([True, 1]) else -x,
    "jax.tree.map": lambda x: jax.tree.map(lambda a: 2 * a, {"a": x, "b": [x]}),
    "jax.grad": lambda x: jax.grad(lambda a: jnp.sum(jnp.tanh(a) ** 2))(x),
    "jax.value_and_grad": lambda x: jax.value_and_grad(lambda a: jnp.sum(a * a))(x),
    "jax.vmap": lambda x: jax.vmap(lambda a: a * jnp.sum(x))(x),
    "jax.jit": lambda x: facade.facade()["jax"].jit(static_argnums=1)(lambda a, n: a * n)(x, 2),
    "lax.associative_scan": lambda x: lax.associative_scan(jnp.add, x),
    "lax.concatenate": lambda x: lax.concatenate([x, x], 0),
    "lax.cond": lambda x: lax.cond(x[0] > 0, lambda: x, lambda: -x),
    "lax.dynamic_index_in_dim": lambda x: lax.dynamic_index_in_dim(x, jnp.argmax(x)),
    "lax.dynamic_slice": lambda x: lax.dynamic_slice(x, (jnp.argmax(x),), (2,)),
    "lax.dynamic_slice_in_dim": lambda x: lax.dynamic_slice_in_dim(x, jnp.argmax(x), 2),
    "lax.dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, x[:1], (1,)),
    "lax.dynamic_update_index_in_dim": lambda x: lax.dynamic_update_index_in_dim(x, 1.0, jnp.argmax(x), 0),
    "lax.dynamic_update_slice_in_dim": lambda x: lax.dynamic_update_slice_in_dim(x, x[:1], 1, 0),
    "lax.fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, c: c * 0.5 + x[i], 0.0),
    "lax.full": lambda x: lax.full((3,), 2.0) * x,
    "lax.iota": lambda x: lax.iota(jnp.float32, 3) * x,
    "lax.map": lambda x: lax.map(lambda a: 2 * a, x),
    "lax.scan": lambda x: lax.scan(lambda c, a: (c + a, c * a), 0.0, x),
    "lax.select": lambda x: lax.select(x > 0, x, -x),
    "lax.select_n": lambda x: lax.select_n(x > 0, x, -x),
    "lax.squeeze": lambda x: lax.squeeze(x[None], (0,)),
    "lax.switch": lambda x: lax.switch(jnp.argmax(x), [lambda v: v, lambda v: -v], x),
    "lax.transpose": lambda x: lax.transpose(x[None], (1, 0)),
}
OPERATORS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x: x**2 + x**0.5 + 2.0**x + x**-1 + x % 2 + x // 0.3 - (-x) / 3 + abs(x),
    "powers": lambda x: x ** jnp.arange(3) + (x.astype(int) << 1) + (x.astype(int) >> 1),
    "logic": lambda x: ((x > 0) & (x < 1)) | ~(x >= 2) ^ (x != 0.5) | (x == 0.1) | (x <= 0.2),
    "slices": lambda x: (x[::-1][-1], x[1:], x[None], x[..., 0], x[jnp.array([1, 0])], list(x)),
    "updates": lambda x: x.at[0].set(1.0).at[1].add(2.0).at[2].multiply(3.0).at[0].min(3.0).at[1].max(0.0),
    "methods": lambda x: (x.mean(), x.max(), x.min(), x.prod(), x.std(), x.T, x.flatten(), x.argmax(), x.dot(x)),
    "matrices": lambda x: (jnp.outer(x, x) @ x, jnp.outer(x, x).T, jnp.linalg.norm(jnp.outer(x, x), axis=0)),
    "norms": lambda x: (jnp.linalg.norm(x, ord=1), jnp.linalg.norm(x, ord=jnp.inf), jnp.linalg.norm(x, axis=-1)),
    "cumulative": lambda x: (jnp.cumsum(x), jnp.diff(x), jnp.roll(x, 1), jnp.sort(x), jnp.argsort(x)),
    "gelu": lambda x: (jax.nn.gelu(x, approximate=False), jax.nn.softmax(x), jax.nn.logsumexp(x)),
    "dynamic": lambda x: lax.dynamic_slice(x, (jnp.argmax(x),), (2,)) if hasattr(lax, "dynamic_slice") else x,
    "nested": lambda x: lax.fori_loop(0, 2, lambda i, c: lax.fori_loop(0, 2, lambda j, d: d + x[j] * i, c), 0.0),
    "constants": lambda x: x * jnp.asarray(np.linspace(0, 1, 3, dtype=np.float32)) + np.float32(0.1) + 3,
    "nan": lambda x: (jnp.nan_to_num(jnp.log(x)), jnp.log(x), jnp.inf * x),
}
# arguments after a vector -> functions that are called with them
MORE_ARGUMENTS: list[tuple[tuple[Any, ...], str]] = [
    ((2,), "jnp.array_split jnp.repeat jnp.tile"),
    ((3,), "jnp.hsplit jnp.split lax.integer_pow"),
    ((1,), "jnp.pad lax.index_in_dim"),
    ((0,), "jnp.delete jnp.expand_dims"),
    (((3, 1),), "jnp.reshape lax.reshape"),
    (((0,),), "lax.expand_dims lax.reduce_max lax.reduce_min lax.reduce_prod lax.reduce_sum lax.rev"),
    ((0, jnp.int32), "lax.argmax lax.argmin"),
    ((jnp.int32,), "jnp.astype lax.convert_element_type"),
    (((0,), (2,)), "lax.slice"),
    ((0, 2), "lax.slice_in_dim"),
    (((2,),), "lax.broadcast"),
    (((2, 3), (1,)), "lax.broadcast_in_dim"),
    (((2, 3),), "jnp.broadcast_to"),
    ((0.0, [(1, 1, 0)]), "lax.pad"),
    ((1, 2.0), "jnp.insert"),
]
NOT_FUNCTIONS = {"jnp.linalg", "jnp.newaxis", "jnp.pi", "jnp.e", "jnp.inf", "jnp.nan", "jnp.ndarray", "jax.Array"}
NOT_FUNCTIONS |= {"jax.lax", "jax.nn", "jax.numpy", "jax.scipy", "jax.tree"}


SCOPE = facade.facade()
PLACES = {
    "jnp": SCOPE["jnp"],
    "jnp.linalg": SCOPE["jnp"].linalg,
    "jax": SCOPE["jax"],
    "jax.nn": SCOPE["jax"].nn,
    "jax.tree": SCOPE["jax"].tree,
    "jax.scipy.special": SCOPE["jax"].scipy.special,
    "lax": SCOPE["lax"],
    "shaping": SCOPE["shaping"],
}
OFFERED = {f"{place}.{n}": f for place, names in PLACES.items() for n, f in vars(names).items()}
for more, called in MORE_ARGUMENTS:
    CALLS |= {name: lambda x, f=OFFERED[name], more=more: f(x, *more) for name in called.split()}


@pytest.mark.parametrize("name", [n for n in OFFERED if n not in NOT_FUNCTIONS | CALLS.keys()])
def test_function_in_scope_is_encoded_and_read(name: str):
    """Each function of the facade, on the arguments it takes: traced, written, read. Those of CALLS run, too."""
    function, worked = OFFERED[name], 0
    for shapes in _TRIED:
        structs = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes]
        try:
            jax.eval_shape(function, *structs)
        except (TypeError, ValueError, IndexError, NotImplementedError):
            continue
        there_and_back(total(function), *shapes)
        worked += 1
    assert worked, "no arguments of the test fit this function: name some in CALLS"


def test_primitives_of_the_table_exist_in_this_jax():
    newer = set() if jax.__version_info__ >= (0, 11) else {"log2", "one_minus_square", "unstack"}
    assert set(TABLE) - set(known()) - {"split", "stack", "tile", "square"} == newer


def test_scan_parameters_are_those_of_every_jax():
    """Its parameters changed in JAX 0.11; this runs on every version that is supported."""

    def loop(x: jax.Array) -> Any:
        a, b = x[0] + 1.0, x[1] * 2.0
        return lax.scan(lambda c, v: ((c[0] + a * v, c[1] - b, c[2] + 1), v * a), (a, b, 0), x)

    equations = jax.make_jaxpr(loop)(jnp.zeros(3)).jaxpr.eqns
    (scan,) = (e for e in equations if e.primitive.name == "scan")
    params = scan_params(scan.params)
    assert (params["num_consts"], params["num_carry"], params["length"]) == (2, 3, 3)
    assert len(scan.invars) == 2 + 3 + 1


def test_transfer_to_no_device_is_a_copy():
    """JAX 0.9 writes jnp.full_like so."""
    assert is_copy("device_put", {"devices": (None,), "srcs": (None,)})
    assert not is_copy("device_put", {"devices": (jax.devices()[0],), "srcs": (None,)})
    assert is_copy("copy", {})
    assert not is_copy("add", {})


RUN = list((OPERATORS | CALLS).items())


@pytest.mark.parametrize("first", range(0, len(RUN), 20))
def test_rebuilt_values_are_the_same_bit_by_bit(first: int):
    """Many functions in one program, which compiles sooner."""
    names, functions = zip(*RUN[first : first + 20], strict=True)
    same_bits(lambda x: [total(f)(x)[0] for f in functions], names)


def _matrix(x: jax.Array) -> jax.Array:
    return jnp.stack([jnp.stack([x[0], x[1] * 2.0]), jnp.stack([jnp.sin(x[1]), jnp.exp(x[2])])])


@pytest.mark.parametrize(
    ("function", "computes"),
    [
        (lambda x: [_matrix(x)[1, 1]], {"exp"}),
        (lambda x: [_matrix(x)[-1, 0]], {"sin"}),
        # a vector in a column
        (lambda x: [jnp.stack([jnp.exp(x), jnp.sin(x)], axis=1)[2, 0]], {"exp", "sin"}),
        (lambda x: [_matrix(x)[1].sum()], {"exp", "sin", "mul"}),  # a row: not taken apart
        (lambda x: [_matrix(x)[:, 1].sum()], {"exp", "sin", "mul"}),
        (lambda x: [x[0] + 0.0 * jnp.stack([x, x]).sum()], {"mul"}),
        (lambda x: [(jnp.exp(x), x[0])[1]], set()),
    ],
)
def test_unneeded_operations_are_left_out(function: Callable[..., Any], computes: set[str]):
    """The entries of a matrix that a program does not read, above all."""
    same_bits(function)
    kept = {equation.primitive for equation in there_and_back(function, V).equations}
    assert kept & {"exp", "sin", "mul"} == computes


def test_unneeded_operations_are_checked_all_the_same():
    def unused(x: jax.Array) -> list[jax.Array]:
        jax.debug.print("{}", x[0])
        return [x[0]]

    with pytest.raises(ProgramError, match="printing is not allowed"):
        there_and_back(unused, V)


def test_rebuilt_function_runs_in_a_scan():
    def native(x: jax.Array) -> list[jax.Array]:
        return [jnp.sum(jax.nn.relu(x) + jax.nn.softplus(x) + jax.nn.silu(x) + shaping.tolerance(x))]

    rebuilt = there_and_back(native, V)
    many = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    step = jax.jit(lambda xs: lax.scan(lambda c, x: (c + run(rebuilt, [x])[0], 0), jnp.float32(0), xs)[0])
    np.testing.assert_allclose(step(many), sum(float(native(x)[0]) for x in many), rtol=1e-5)
