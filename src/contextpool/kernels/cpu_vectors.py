"""Short vectors for compiled code: 64 bytes of numbers, a cache line, held in registers and worked on at once.

Plain loops over columns leave numba's compiler to prove that no two arrays overlap, edge after edge; these say
what is meant. Every operation is rounded by itself and none is reordered, so a message that is computed twice
is the same twice. A NaN stays one. (numba's cache watches the file of the caller alone: after a change here,
remove __pycache__.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

VECTOR_BYTES = 64


class Vector(types.Type):
    """Numba's name for a vector of float32 or float64."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.lanes = VECTOR_BYTES * 8 // dtype.bitwidth
        number = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.in_memory = ir.VectorType(number, self.lanes)
        super().__init__(name=f"Vector({dtype}, {self.lanes})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.in_memory)


@intrinsic
def lanes_of(typing: Any, kind: Any) -> Any:
    """How many numbers of the type of the number `kind` a vector holds."""
    lanes = Vector(kind).lanes
    return types.intp(kind), lambda context, builder, signature, given: context.get_constant(
        types.intp, lanes
    )


@intrinsic
def load(typing: Any, kind: Any, address: Any, place: Any) -> Any:
    """The vector that starts at number `place` of those at an address, which have the type of `kind`."""
    vector = Vector(kind)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = context.cast(builder, given[2], signature.args[2], types.intp)
        return builder.load(_pointer(builder, vector, given[1], place), align=kind.bitwidth // 8)

    return vector(kind, address, place), generate


@intrinsic
def store(typing: Any, address: Any, place: Any, vector: Any) -> Any:
    """Write the vector to number `place` and what follows of those at an address."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = context.cast(builder, given[1], signature.args[1], types.intp)
        builder.store(given[2], _pointer(builder, vector, given[0], place), align=vector.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(address, place, vector), generate


def _pointer(builder: Any, vector: Vector, address: Any, place: Any) -> Any:
    numbers = builder.inttoptr(address, vector.in_memory.element.as_pointer())
    return builder.bitcast(builder.gep(numbers, [place]), vector.in_memory.as_pointer())


def _one_number(kind: Any) -> Any:
    @intrinsic
    def number_at(typing: Any, address: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            place = context.cast(builder, given[1], signature.args[1], types.intp)
            numbers = builder.inttoptr(given[0], context.get_value_type(kind).as_pointer())
            return builder.load(builder.gep(numbers, [place]))

        return kind(address, place), generate

    return number_at


uint8_at, int32_at, int64_at = _one_number(types.uint8), _one_number(types.int32), _one_number(types.int64)
"""(address, place) -> number `place` of those at an address."""


@intrinsic
def add_number(typing: Any, address: Any, place: Any, number: Any) -> Any:
    """Add to number `place` of those at an address, which have the type of `number`."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = context.cast(builder, given[1], signature.args[1], types.intp)
        numbers = builder.inttoptr(given[0], context.get_value_type(number).as_pointer())
        pointer = builder.gep(numbers, [place])
        builder.store(builder.fadd(builder.load(pointer), given[2]), pointer)
        return context.get_dummy_value()

    return types.void(address, place, number), generate


@intrinsic
def splat(typing: Any, kind: Any, number: Any) -> Any:
    """The number in every lane, in the type of the number `kind`."""
    vector = Vector(kind)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _in_every_lane(
            builder, vector, context.cast(builder, given[1], signature.args[1], vector.dtype)
        )

    return vector(kind, number), generate


@intrinsic
def splat_at(typing: Any, kind: Any, address: Any, place: Any) -> Any:
    """In every lane number `place` of those at an address."""
    vector = Vector(kind)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = context.cast(builder, given[2], signature.args[2], types.intp)
        numbers = builder.inttoptr(given[1], vector.in_memory.element.as_pointer())
        return _in_every_lane(builder, vector, builder.load(builder.gep(numbers, [place])))

    return vector(kind, address, place), generate


def _in_every_lane(builder: Any, vector: Vector, number: Any) -> Any:
    empty = ir.Constant(vector.in_memory, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, empty, _lanes([0] * vector.lanes))


@intrinsic
def sum_of_lanes(typing: Any, vector: Any) -> Any:
    """One number: the second half is added to the first until one lane is left."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        (rest,), width = given, vector.lanes
        while width > 1:
            width //= 2
            first, second = list(range(width)), list(range(width, 2 * width))
            low, high = (builder.shuffle_vector(rest, rest, _lanes(half)) for half in (first, second))
            rest = builder.fadd(low, high)
        return builder.extract_element(rest, ir.Constant(ir.IntType(32), 0))

    return vector.dtype(vector), generate


def _lanes(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), numbers)


def _of_two(emit: Callable[[Any, Any, Any], Any]) -> Any:
    """An operation on two vectors, from what it emits."""

    @intrinsic
    def operation(typing: Any, one: Any, other: Any) -> Any:
        return one(one, other), lambda context, builder, signature, given: emit(builder, *given)

    return operation


def _of_three(emit: Callable[[Any, Any, Any, Any], Any]) -> Any:
    @intrinsic
    def operation(typing: Any, one: Any, other: Any, value: Any) -> Any:
        return one(one, other, value), lambda context, builder, signature, given: emit(builder, *given)

    return operation


def _extreme(sign: str) -> Callable[[Any, Any, Any], Any]:
    def emit(builder: Any, one: Any, other: Any) -> Any:
        beats = builder.fcmp_ordered(sign, other, one)
        is_nan = builder.fcmp_unordered("uno", other, other)
        return builder.select(builder.or_(beats, is_nan), other, one)

    return emit


def _where(sign: str) -> Callable[[Any, Any, Any, Any], Any]:
    def emit(builder: Any, one: Any, other: Any, value: Any) -> Any:
        return builder.select(builder.fcmp_ordered(sign, one, other), value, ir.Constant(value.type, None))

    return emit


larger, smaller = _of_two(_extreme(">")), _of_two(_extreme("<"))
"""(a, b) -> the larger (smaller) in each lane; NaN where either is."""
where_equal, where_above = _of_three(_where("==")), _of_three(_where(">"))
"""(a, b, value) -> the value where a == b (a > b), 0 elsewhere."""


@intrinsic
def root(typing: Any, vector: Any) -> Any:
    """The square root in each lane."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = ir.FunctionType(vector.in_memory, [vector.in_memory])
        name = f"llvm.sqrt.v{vector.lanes}f{vector.dtype.bitwidth}"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)

    return vector(vector), generate


def _overload_operator(symbol: Callable[..., Any], operation: Any) -> None:
    @overload(symbol)
    def on_vectors(one, other):  # type: ignore[no-untyped-def]
        if isinstance(one, Vector) and isinstance(other, Vector):
            return lambda one, other: operation(one, other)
        return None


_overload_operator(operator.add, _of_two(lambda builder, one, other: builder.fadd(one, other)))
_overload_operator(operator.sub, _of_two(lambda builder, one, other: builder.fsub(one, other)))
_overload_operator(operator.mul, _of_two(lambda builder, one, other: builder.fmul(one, other)))
_overload_operator(operator.truediv, _of_two(lambda builder, one, other: builder.fdiv(one, other)))


@intrinsic
def claim(typing: Any, counter: Any) -> Any:
    """The counter's first number, which is one more afterwards; threads that ask at once get different ones."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(counter)(context, builder, given[0])
        return builder.atomic_rmw("add", array.data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), generate
