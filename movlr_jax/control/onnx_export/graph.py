"""Translate a JAX function into an ONNX graph, operation by operation.

What does not depend on the inputs is computed here and becomes a constant. Calls are inlined and loops of known
length are unrolled, so that a graph has only arithmetic, which every ONNX runtime has.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax.extend import core as jex
from onnx import TensorProto, helper, numpy_helper

from movlr_jax.errors import UserError
from movlr_jax.sandbox.codec import scan_params

OPSET = 18
_IR = 9  # of ONNX 1.14, which all current runtimes read
_LONGEST = 256  # steps of a loop that is unrolled
_TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}
_CALLS = ("pjit", "jit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call")
_SAME = {  # operations that ONNX has, too
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "max": "Max", "min": "Min",
    "exp": "Exp", "log": "Log", "tanh": "Tanh", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "sqrt": "Sqrt", "abs": "Abs", "sign": "Sign",
    "floor": "Floor", "ceil": "Ceil", "logistic": "Sigmoid", "erf": "Erf", "pow": "Pow", "eq": "Equal",
    "lt": "Less", "lt_to": "Less", "le_to": "LessOrEqual", "gt": "Greater", "le": "LessOrEqual",
    "ge": "GreaterOrEqual",
    "and": "And", "or": "Or", "not": "Not", "xor": "Xor",
}  # fmt: skip
_NOTHING = ("copy", "copy_p", "device_put", "stop_gradient", "optimization_barrier")

Value = np.ndarray | str  # a constant, or the name of a tensor


def onnx_model(
    function: Callable[..., jax.Array],
    inputs: Mapping[str, tuple[int, ...]],
    output: str,
    about: Mapping[str, str],
    doc: str = "",
) -> onnx.ModelProto:
    """Return `function` as an ONNX model.

    Args:
        function: A function of JAX arrays that takes each of `inputs` by position and returns one array, all float32.
        inputs: Name and shape of each input.
        output: Name of the result.
        about: Metadata of the model.
        doc: What the model is, for people.

    Raises:
        UserError: For an operation that cannot be translated.
    """
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in inputs.values()]
    traced = jax.make_jaxpr(function)(*shapes)
    graph = _Graph()
    (result,) = graph.run(traced.jaxpr, traced.consts, list(inputs))
    graph.emit("Identity", [graph.name_of(result)], output)
    shape = traced.out_avals[0].shape
    made = helper.make_graph(
        graph.used(output),
        "policy",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, of) for name, of in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        graph.constants(),
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR, producer_name="movlr-jax"
    )
    model.doc_string = doc
    helper.set_model_props(model, dict(about))
    onnx.checker.check_model(model)
    return model


class _Graph:
    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._known: dict[str, np.ndarray] = {}
        self._names: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._count = 0

    def run(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Value]) -> list[Value]:
        """Translate the operations of `jaxpr` and return its results."""
        found: dict[Any, Value] = {}

        def read(atom: Any) -> Value:
            return np.asarray(atom.val) if isinstance(atom, jex.Literal) else found[atom]

        found.update(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
        found.update(zip(jaxpr.invars, arguments, strict=True))
        for eqn in jaxpr.eqns:
            results = self._translate(eqn, [read(atom) for atom in eqn.invars])
            found.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def emit(self, kind: str, inputs: Sequence[Value], output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        self._count += 1
        output = output or f"t{self._count}"
        names = [self.name_of(x) for x in inputs]
        self._nodes.append(helper.make_node(kind, names, [output], **attributes))
        return output

    def name_of(self, value: Value) -> str:
        """Return the name of a tensor; equal constants are one."""
        if isinstance(value, str):
            return value
        key = (str(value.dtype), value.shape, value.tobytes())
        if key not in self._names:
            self._names[key] = f"c{len(self._names)}"
            self._known[self._names[key]] = value
        return self._names[key]

    def used(self, output: str) -> list[onnx.NodeProto]:
        """Return the nodes that `output` depends on, in order."""
        wanted, kept = {output}, []
        for node in reversed(self._nodes):
            if node.output[0] in wanted:
                kept.append(node)
                wanted.update(node.input)
        self._nodes = kept[::-1]
        return self._nodes

    def constants(self) -> list[onnx.TensorProto]:
        read = {name for node in self._nodes for name in node.input}
        return [numpy_helper.from_array(value, name) for name, value in self._known.items() if name in read]

    def _translate(self, eqn: Any, inputs: list[Value]) -> list[Value]:
        name, params = eqn.primitive.name, eqn.params
        if name in _CALLS:
            inner = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
            closed = inner if hasattr(inner, "consts") else jex.ClosedJaxpr(inner, ())
            return self.run(closed.jaxpr, closed.consts, inputs)
        if name == "scan":
            return self._scan(params, inputs)
        if name == "cond" and isinstance(inputs[0], np.ndarray):
            branch = params["branches"][int(inputs[0])]
            return self.run(branch.jaxpr, branch.consts, inputs[1:])
        if all(isinstance(x, np.ndarray) for x in inputs):
            return list(_computed(eqn, inputs))
        if name == "split":
            sizes = np.array(params["sizes"], np.int64)
            outputs = [f"t{self._count + 1}_{i}" for i in range(len(sizes))]
            self._count += 1
            starts = np.cumsum([0, *sizes[:-1]])
            for output, start, size in zip(outputs, starts, sizes, strict=True):
                self._slice(inputs[0], [start], [start + size], [params["axis"]], output=output)
            return list(outputs)
        if name in _NOTHING:
            return list(inputs)
        special = getattr(self, f"_op_{name.replace('-', '_')}", None)
        if special is not None:
            return [special(eqn, inputs)]
        if name in _SHORT:
            return [_SHORT[name](self, eqn, inputs)]
        if name in _SAME:
            return [self.emit(_SAME[name], inputs)]
        raise UserError(
            f"export: the operation {name!r} of this policy has no translation to ONNX; use other observations or "
            "another action"
        )

    def _scan(self, params: Mapping[str, Any], inputs: list[Value]) -> list[Value]:
        """Unroll a loop of known length."""
        params = scan_params(dict(params))
        length, constant, carried = params["length"], params["num_consts"], params["num_carry"]
        if length > _LONGEST:
            raise UserError(
                f"export: this policy has a loop of {length} steps, expected at most {_LONGEST}; give fewer "
                "optimizer.muscle.iterations"
            )
        end, stacked = constant + carried, []
        consts, carry, each = inputs[:constant], inputs[constant:end], inputs[end:]
        for i in reversed(range(length)) if params["reverse"] else range(length):
            now = [self._row(x, i) for x in each]
            results = self.run(params["jaxpr"].jaxpr, params["jaxpr"].consts, [*consts, *carry, *now])
            carry = results[:carried]
            stacked.append(results[carried:])
        if params["reverse"]:
            stacked.reverse()
        return [*carry, *(self.stack([row[j] for row in stacked]) for j in range(len(stacked[0])))]

    def _row(self, value: Value, i: int) -> Value:
        if isinstance(value, np.ndarray):
            return np.asarray(value[i])
        return self.emit("Gather", [value, np.array(i, np.int64)], axis=0)

    def stack(self, rows: Sequence[Value], axis: int = 0) -> Value:
        if all(isinstance(row, np.ndarray) for row in rows):
            return np.stack(rows, axis)  # pyright: ignore[reportArgumentType, reportCallIssue]
        place = np.array([axis], np.int64)
        return self.emit("Concat", [self.emit("Unsqueeze", [row, place]) for row in rows], axis=axis)

    def _slice(self, x: Value, start: Any, stop: Any, axes: Any, steps: Any = None, output: str = "") -> str:
        parts = [np.asarray(part, np.int64) for part in (start, stop, axes)]
        more = [] if steps is None else [np.asarray(steps, np.int64)]
        return self.emit("Slice", [x, *parts, *more], output)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        if isinstance(x, np.ndarray):
            return x.reshape(shape)
        return self.emit("Reshape", [x, np.array(shape, np.int64)])

    # Operations by name, each (equation, inputs) -> output.

    def _op_integer_pow(self, eqn: Any, x: list[Value]) -> Value:
        power, result = abs(eqn.params["y"]), x[0]
        for _ in range(power - 1):
            result = self.emit("Mul", [result, x[0]])
        return result if eqn.params["y"] > 0 else self.emit("Reciprocal", [result])

    def _op_round(self, eqn: Any, x: list[Value]) -> Value:
        if int(eqn.params["rounding_method"]) != 1:  # to nearest even, as ONNX rounds
            raise UserError("export: this policy rounds away from zero, which ONNX cannot; use jnp.round")
        return self.emit("Round", x)

    def _op_select_n(self, eqn: Any, x: list[Value]) -> Value:
        if len(x) != 3:
            raise UserError(f"export: this policy chooses between {len(x) - 1} values; only two have a translation")
        which = x[0]
        if eqn.invars[0].aval.dtype != np.bool_:
            which = self.emit("Cast", [which], to=TensorProto.BOOL)
        return self.emit("Where", [which, x[2], x[1]])

    def _op_dot_general(self, eqn: Any, x: list[Value]) -> Value:
        (left, right), (left_batch, right_batch) = eqn.params["dimension_numbers"]
        a, b = (atom.aval.ndim for atom in eqn.invars)
        if not left_batch and tuple(left) == (a - 1,) and tuple(right) == (0,):
            # as matrices: ONNX Runtime 1.32 fuses a transposed matrix and a vector to a wrong product
            rows, columns = (atom.aval.shape for atom in eqn.invars)
            sides = (
                self.reshape(x[0], (1, *rows) if a == 1 else rows),
                self.reshape(x[1], (*columns, 1) if b == 1 else columns),
            )
            product = self.emit("MatMul", sides)
            return self.reshape(product, eqn.outvars[0].aval.shape)
        names = (list(string.ascii_lowercase[:a]), list(string.ascii_uppercase[:b]))
        shared = [*zip(left_batch, right_batch, strict=True), *zip(left, right, strict=True)]
        for i, j in shared:
            names[1][j] = names[0][i]
        result = [names[0][i] for i in left_batch]
        for side, of in enumerate(names):
            result += [letter for k, letter in enumerate(of) if k not in [pair[side] for pair in shared]]
        return self.emit("Einsum", x, equation=f"{''.join(names[0])},{''.join(names[1])}->{''.join(result)}")

    def _op_broadcast_in_dim(self, eqn: Any, x: list[Value]) -> Value:
        shape, places = eqn.params["shape"], eqn.params["broadcast_dimensions"]
        before = [1] * len(shape)
        for place, size in zip(places, eqn.invars[0].aval.shape, strict=True):
            before[place] = size
        inner = self.reshape(x[0], before)
        return inner if tuple(before) == tuple(shape) else self.emit("Expand", [inner, np.array(shape, np.int64)])

    def _op_slice(self, eqn: Any, x: list[Value]) -> Value:
        p = eqn.params
        return self._slice(x[0], p["start_indices"], p["limit_indices"], range(len(p["start_indices"])), p["strides"])

    def _op_pad(self, eqn: Any, x: list[Value]) -> Value:
        low, high, interior = np.array(eqn.params["padding_config"], np.int64).T
        if min(*low, *high) < 0 or interior.any():
            raise UserError("export: this policy pads between values, which has no translation to ONNX")
        return self.emit("Pad", [x[0], np.concatenate([low, high]), x[1]])

    def _op_rev(self, eqn: Any, x: list[Value]) -> Value:
        axes, shape = eqn.params["dimensions"], eqn.invars[0].aval.shape
        return self._slice(x[0], [-1] * len(axes), [-shape[a] - 1 for a in axes], axes, [-1] * len(axes))

    def _op_dynamic_slice(self, eqn: Any, x: list[Value]) -> Value:
        shape, sizes, result = eqn.invars[0].aval.shape, eqn.params["slice_sizes"], x[0]
        for axis, (start, length, size) in enumerate(zip(x[1:], shape, sizes, strict=True)):
            if length == size:
                continue
            begin = self._within(start, 0, length - size)
            rows = self.emit("Add", [self.reshape(begin, [1]), np.arange(size)])
            result = self.emit("Gather", [result, rows], axis=axis)
        return result

    def _within(self, index: Value, low: int, high: int) -> str:
        """Return an index as int64, limited to low..high."""
        wide = self.emit("Cast", [index], to=TensorProto.INT64)
        return self.emit("Min", [self.emit("Max", [wide, np.array(low)]), np.array(high)])

    def _op_gather(self, eqn: Any, x: list[Value]) -> Value:
        operand, dims, p = eqn.invars[0].aval, eqn.params["dimension_numbers"], eqn.params
        if isinstance(x[1], np.ndarray):  # what is gathered, as indices of the flat array
            flat = np.arange(operand.size, dtype=np.int32).reshape(operand.shape)
            (places,) = _computed(eqn, [flat, x[1]])
            return self.emit("Gather", [self.reshape(x[0], [-1]), places.astype(np.int64)], axis=0)
        whole = all(p["slice_sizes"][i] == n for i, n in enumerate(operand.shape) if i != 0)
        rows = dims.start_index_map == (0,) and dims.collapsed_slice_dims == (0,) and not dims.operand_batching_dims
        trailing = tuple(range(eqn.outvars[0].aval.ndim - operand.ndim + 1, eqn.outvars[0].aval.ndim))
        if not (whole and rows and tuple(dims.offset_dims) == trailing):
            raise UserError("export: this policy looks values up in a way that has no translation to ONNX")
        index = self.reshape(x[1], eqn.invars[1].aval.shape[:-1])
        return self.emit("Gather", [x[0], self._within(index, 0, operand.shape[0] - 1)], axis=0)

    def _op_scatter(self, eqn: Any, x: list[Value]) -> Value:
        """Overwrite values at known places: choose between the old values and the new ones."""
        operand, updates = eqn.invars[0].aval, eqn.invars[2].aval
        self._known_places(x)
        old = np.arange(operand.size, dtype=np.int32).reshape(operand.shape)
        new = operand.size + np.arange(updates.size, dtype=np.int32).reshape(updates.shape)
        (places,) = _computed(eqn, [old, x[1], new])  # pyright: ignore[reportArgumentType]
        both = self.emit("Concat", [self.reshape(x[0], [-1]), self.reshape(x[2], [-1])], axis=0)
        return self.emit("Gather", [both, places.astype(np.int64)], axis=0)

    def _op_scatter_add(self, eqn: Any, x: list[Value]) -> Value:
        """Add values at known places: a product with a matrix of zeros and ones."""
        operand, updates = eqn.invars[0].aval, eqn.invars[2].aval
        self._known_places(x)
        units = np.eye(updates.size, dtype=np.float32).reshape(updates.size, *updates.shape)
        zeros = np.zeros(operand.shape, np.float32)
        columns = [_computed(eqn, [zeros, x[1], unit])[0].ravel() for unit in units]  # pyright: ignore[reportArgumentType]
        added = self.emit("MatMul", [np.stack(columns, axis=1), self.reshape(x[2], [-1])])
        return self.emit("Add", [x[0], self.reshape(added, operand.shape)])

    def _known_places(self, x: list[Value]) -> None:
        if not isinstance(x[1], np.ndarray):
            raise UserError("export: this policy writes to computed places, which has no translation to ONNX")

    def reduce(self, kind: str, eqn: Any, x: Value) -> Value:
        axes = np.array(eqn.params["axes"], np.int64)
        return self.emit(f"Reduce{kind}", [x, axes], keepdims=0)

    def reduce_bools(self, kind: str, eqn: Any, x: Value) -> Value:
        number = self.reduce(kind, eqn, self.emit("Cast", [x], to=TensorProto.INT32))
        return self.emit("Cast", [number], to=TensorProto.BOOL)


_ONE = np.array(1.0, np.float32)
# operations that are one expression: (graph, equation, inputs) -> output
_SHORT: dict[str, Callable[[_Graph, Any, list[Value]], Value]] = {
    "square": lambda graph, eqn, x: graph.emit("Mul", [x[0], x[0]]),
    "rsqrt": lambda graph, eqn, x: graph.emit("Reciprocal", [graph.emit("Sqrt", x)]),
    "log1p": lambda graph, eqn, x: graph.emit("Log", [graph.emit("Add", [x[0], _ONE])]),
    "expm1": lambda graph, eqn, x: graph.emit("Sub", [graph.emit("Exp", x), _ONE]),
    "rem": lambda graph, eqn, x: graph.emit("Mod", x, fmod=1),
    "ne": lambda graph, eqn, x: graph.emit("Not", [graph.emit("Equal", x)]),
    "is_finite": lambda graph, eqn, x: graph.emit(
        "Not", [graph.emit("Or", [graph.emit("IsNaN", x), graph.emit("IsInf", x)])]
    ),
    "clamp": lambda graph, eqn, x: graph.emit("Min", [graph.emit("Max", [x[1], x[0]]), x[2]]),
    "convert_element_type": lambda graph, eqn, x: graph.emit("Cast", x, to=_TYPES[str(eqn.outvars[0].aval.dtype)]),
    **dict.fromkeys(
        ("reshape", "squeeze", "expand_dims"), lambda graph, eqn, x: graph.reshape(x[0], eqn.outvars[0].aval.shape)
    ),
    "transpose": lambda graph, eqn, x: graph.emit("Transpose", x, perm=list(eqn.params["permutation"])),
    "concatenate": lambda graph, eqn, x: graph.emit("Concat", x, axis=eqn.params["dimension"]),
    "stack": lambda graph, eqn, x: graph.stack(x, eqn.params["axis"]),
    "cumsum": lambda graph, eqn, x: graph.emit(
        "CumSum", [x[0], np.array(eqn.params["axis"])], reverse=int(eqn.params["reverse"])
    ),
    "reduce_sum": lambda graph, eqn, x: graph.reduce("Sum", eqn, x[0]),
    "reduce_max": lambda graph, eqn, x: graph.reduce("Max", eqn, x[0]),
    "reduce_min": lambda graph, eqn, x: graph.reduce("Min", eqn, x[0]),
    "reduce_prod": lambda graph, eqn, x: graph.reduce("Prod", eqn, x[0]),
    "reduce_and": lambda graph, eqn, x: graph.reduce_bools("Min", eqn, x[0]),
    "reduce_or": lambda graph, eqn, x: graph.reduce_bools("Max", eqn, x[0]),
}


def _computed(eqn: Any, inputs: Sequence[Any]) -> list[np.ndarray]:
    """Return the results of an operation on constants."""
    results = eqn.primitive.bind(*map(jnp.asarray, inputs), **eqn.params)
    return [np.asarray(x) for x in (results if eqn.primitive.multiple_results else [results])]
