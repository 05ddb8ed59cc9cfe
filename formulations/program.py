"""The solver-neutral value between formulations and solvers: columns under rows, and how it is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, largest_by

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array


@dataclass(frozen=True)
class Block:
    """A run of rows or columns with a common name.

    `label` names the i-th member; without it members are called ``name[i]``, or ``name`` when there is one.
    """

    name: str
    size: int
    label: Callable[[int], str] | None = None

    @classmethod
    def named(cls, name: str, labels: Sequence[str]) -> Block:
        """Block of members with names of their own."""
        return cls(name, len(labels), labels.__getitem__)

    def member(self, index: int) -> str:
        """Name of one member."""
        if self.label is not None:
            return self.label(index)
        return self.name if self.size == 1 else f"{self.name}[{index}]"


@dataclass(frozen=True)
class Line:
    """GPUs of a pool laid on a line, for solvers that can place aligned intervals.

    Attributes
    ----------
    pool : str
        Name of the pool.
    blocks : int array, shape (n_blocks, 2)
        Start and size of the structural blocks; each start is a multiple of its power-of-two size.
    busy : int array, shape (n_busy,)
        Positions that are taken already.
    """

    pool: str
    blocks: IntArray
    busy: IntArray


@dataclass(frozen=True)
class Intervals:
    """Chosen columns occupy disjoint aligned intervals on lines.

    Attributes
    ----------
    lines : tuple of Line
        One per pool.
    line : int array, shape (n_columns,)
        Line that a column needs room on, -1 for none.
    size : int array, shape (n_columns,)
        Power-of-two length; the start must be a multiple of it, inside one structural block.
    """

    lines: tuple[Line, ...]
    line: IntArray
    size: IntArray


class ProgramRows:
    """Rows of a program, whether its columns are written down or by kind: bounds, names and prices.

    Attributes
    ----------
    row_lower, row_upper : float arrays, shape (n_rows,)
    rows : tuple of Block
    sense : {"min", "max"}
    """

    row_lower: FloatArray
    row_upper: FloatArray
    rows: tuple[Block, ...]
    sense: Literal["min", "max"]

    def row_names(self) -> list[str]:
        """Names of all rows."""
        return [block.member(i) for block in self.rows for i in range(block.size)]

    def reported(self, value: float) -> float:
        """Cost or bound in the direction of the user's objective."""
        return -value if self.sense == "max" else value

    def named_prices(self, prices: FloatArray) -> dict[str, float]:
        """Row prices other than 0 by the rows' names, in the direction of the user's objective."""
        named = zip(self.row_names(), prices, strict=True)
        return {name: self.reported(float(y)) for name, y in named if y != 0.0}

    def valid_prices(self, prices: FloatArray) -> FloatArray:
        """Row prices without those whose sign asks for a bound that is infinite."""
        y = np.where((prices > 0) & ~np.isfinite(self.row_lower), 0.0, prices)
        return np.where((y < 0) & ~np.isfinite(self.row_upper), 0.0, y)

    def charged(self, prices: FloatArray) -> float:
        """Return what the rows add to the bound: each price times the limit that its sign asks for."""
        up, down = prices > 0, prices < 0
        return float(prices[up] @ self.row_lower[up]) + float(prices[down] @ self.row_upper[down])


@dataclass(frozen=True)
class Program(ProgramRows):
    r"""Minimise ``cost @ x + offset`` over choice groups, rows and bounds.

    .. math::
        \min\ c^T x + c_0 \quad \text{s.t.}\quad
        r^l \le A x \le r^u,\ \ \sum_{i \in G_k} x_i = 1\ \forall k,\ \ l \le x \le u,\ \ x_i \in Z\ (i \in I)

    The choice groups are the first columns, contiguous, and **not** rows of `matrix`: group k is the columns
    ``group_start[k]`` to ``group_start[k + 1]``. Columns after the last group are free columns.

    Attributes
    ----------
    cost : float array, shape (n_columns,)
        Always to be minimised; `sense` says in which direction the user's objective reads.
    matrix : csc_array, shape (n_rows, n_columns)
        Coupling rows.
    row_lower, row_upper : float arrays, shape (n_rows,)
        Infinite where there is no bound.
    lower, upper : float arrays, shape (n_columns,)
        Column bounds; choice columns have 0 and 1.
    integer : bool array, shape (n_columns,)
    group_start : int array, shape (n_groups + 1,)
    rows, columns : tuples of Block
        Names, in order.
    offset : float
    sense : {"min", "max"}
        ``max`` when the reported objective is ``-(cost @ x + offset)``.
    bottleneck : int, optional
        Index of the free column that bounds every group's value from above (makespan-like objectives).
    intervals : Intervals, optional
        Aligned no-overlap constraints that no row expresses; only some solvers take them.
    attributes : mapping of str to float array, shape (n_columns,)
        Quantities of the columns that published rules read (``gpus``, ``completion_s``, ``energy_j``).
    supply : int
        So many of the last columns are whole numbers that cost nothing and are there for the rows that they
        are in; the other rows alone nearly say which choices there are (`solvers.supply`).
    """

    cost: FloatArray
    matrix: csc_array
    row_lower: FloatArray
    row_upper: FloatArray
    lower: FloatArray
    upper: FloatArray
    integer: BoolArray
    group_start: IntArray
    rows: tuple[Block, ...]
    columns: tuple[Block, ...]
    offset: float = 0.0
    sense: Literal["min", "max"] = "min"
    bottleneck: int | None = None
    intervals: Intervals | None = None
    attributes: Mapping[str, FloatArray] = field(default_factory=dict)
    supply: int = 0

    by_kind: ClassVar[bool] = False

    @property
    def n_rows(self) -> int:
        """Number of coupling rows."""
        return len(self.row_lower)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.cost)

    @property
    def n_groups(self) -> int:
        """Number of choice groups."""
        return len(self.group_start) - 1

    @property
    def n_choices(self) -> int:
        """Number of columns in choice groups; they come first."""
        return int(self.group_start[-1])

    def column_names(self) -> list[str]:
        """Names of all columns."""
        return [block.member(i) for block in self.columns for i in range(block.size)]

    def objective(self, x: FloatArray) -> float:
        """Cost of a point, offset included, to be minimised."""
        return float(self.cost @ x) + self.offset

    @property
    def nonzeros(self) -> int:
        """Entries of the matrix."""
        return int(self.matrix.nnz)

    def rounded(self, x: FloatArray) -> FloatArray:
        """Make the integer columns of a point exact integers and keep the others inside their bounds."""
        # Adding zero turns -0.0 into 0.0.
        whole = np.where(self.integer, np.round(x), x) + 0.0
        return np.clip(whole, self.lower, self.upper)

    def largest_cost(self) -> float:
        """Largest cost of a column, without its sign."""
        return float(np.max(np.abs(self.cost), initial=0.0))

    def violation(self, x: FloatArray) -> float:
        """Largest violation of a row, bound, group or integrality.

        Rows count relative to their bound, which is one at least, or the largest entry where all are less.
        """
        activity = self.matrix @ x
        least = np.where(self.row_size == 0.0, 1.0, np.minimum(self.row_size, 1.0))
        scale_up, scale_low = (
            np.maximum(least, np.where(np.isfinite(bound), np.abs(bound), 0.0))
            for bound in (self.row_upper, self.row_lower)
        )
        worst = [0.0]
        if self.n_rows:
            worst.append(float(np.max((activity - self.row_upper) / scale_up)))
            worst.append(float(np.max((self.row_lower - activity) / scale_low)))
        if self.n_columns:
            worst.append(float(np.max(self.lower - x)))
            worst.append(float(np.max(x - self.upper)))
            worst.append(float(np.max(np.abs(x - np.round(x))[self.integer], initial=0.0)))
        if self.n_groups:
            sums = np.add.reduceat(x[: self.n_choices], self.group_start[:-1])
            worst.append(float(np.max(np.abs(sums - 1.0))))
        return max(worst)

    @cached_property
    def row_size(self) -> FloatArray:
        """Size of the largest entry of every row, 0 where there is none; shape (n_rows,)."""
        return largest_by(self.matrix.indices, np.abs(self.matrix.data), self.n_rows)

    def lagrangian_bound(self, prices: FloatArray) -> float:
        r"""Lower bound on the optimal cost that row prices prove.

        .. math::
            L(y) = c_0 + \sum_i (y_i^+ r^l_i - y_i^- r^u_i)
                   + \sum_k \min_{j \in G_k,\ u_j > 0} (c - A^T y)_j
                   + \sum_{j\ \text{free}} \min_{l_j \le x_j \le u_j} (c - A^T y)_j x_j

        Parameters
        ----------
        prices : float array, shape (n_rows,)
            y, the derivative of the cost by the row's bound. Components whose sign asks for an
            infinite bound are set to zero, so every vector gives a valid bound.
        """
        y = self.valid_prices(prices)
        reduced = self.cost - self._by_column @ y
        value = self.offset + self.charged(y)
        n = self.n_choices
        if self.n_groups:
            able = reduced[:n] if self._closed is None else np.where(self._closed, np.inf, reduced[:n])
            value += float(np.minimum.reduceat(able, self.group_start[:-1]).sum())
        free = reduced[n:]
        # 0 * inf is nan: a column with no reduced cost contributes nothing.
        corner = np.where(free > 0, self.lower[n:], self.upper[n:])
        value += float(np.where(free == 0, 0.0, free * np.where(free == 0, 0.0, corner)).sum())
        return value

    @cached_property
    def _closed(self) -> BoolArray | None:
        """Mask of choice columns that can only be 0, None where there are none."""
        closed = self.upper[: self.n_choices] == 0.0
        return closed if closed.any() else None

    @cached_property
    def _by_column(self) -> csr_array:
        """The matrix with a row for every column; it is often asked about."""
        return self.matrix.T

    def above_least(self, prices: FloatArray) -> FloatArray:
        """Reduced cost of every choice column above the least of its group, shape (n_choices,).

        Those that can only be 0 do not count for the least, and have an infinite one.
        """
        reduced = (self.cost - self._by_column @ prices)[: self.n_choices]
        able = reduced if self._closed is None else np.where(self._closed, np.inf, reduced)
        least = np.minimum.reduceat(able, self.group_start[:-1])
        above = reduced - np.repeat(least, np.diff(self.group_start))
        return np.asarray(above if self._closed is None else np.where(self._closed, np.inf, above))


class Quantities(Mapping[str, FloatArray]):
    """Quantities of columns by name, which are computed when one is looked at: most solvers look at none."""

    def __init__(self, computed: Callable[[], Mapping[str, FloatArray]]) -> None:
        self._computed = computed

    @cached_property
    def _known(self) -> Mapping[str, FloatArray]:
        return self._computed()

    def __getitem__(self, name: str) -> FloatArray:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self._known),)


class Entries:
    """Gathers the entries of a matrix, in any order; those of one place add up."""

    def __init__(self) -> None:
        self._entries: list[tuple[ArrayLike, ArrayLike, ArrayLike]] = []

    def add(self, rows: ArrayLike, columns: ArrayLike, values: ArrayLike = 1.0) -> None:
        """Add entries; rows, columns and values are broadcast together."""
        self._entries.append((rows, columns, values))

    def matrix(self, n_rows: int, n_columns: int) -> csc_array:
        """Matrix of the entries so far."""
        from scipy.sparse import coo_array

        shapes = [np.broadcast(*entries).shape for entries in self._entries]
        # Indices of half the usual size are sorted faster.
        rows, columns, values = (
            _joined(
                [_spread_out(part[i], shape) for part, shape in zip(self._entries, shapes, strict=True)],
                dtype,
            )
            for i, dtype in enumerate((np.int32, np.int32, np.float64))
        )
        used = values != 0.0
        if not used.all():
            rows, columns, values = rows[used], columns[used], values[used]
        return coo_array((values, (rows, columns)), shape=(n_rows, n_columns)).tocsc()


class ProgramBuilder(Entries):
    """Gathers columns, rows and the entries of their matrix, in any order.

    Values of a block are one number for all its members, or one for each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.n_columns = self.n_rows = 0
        self._columns: list[tuple[Block, list[Any]]] = []
        self._rows: list[tuple[Block, list[Any]]] = []

    def columns(
        self,
        block: Block,
        *,
        cost: ArrayLike = 0.0,
        lower: ArrayLike = 0.0,
        upper: ArrayLike = 1.0,
        integer: ArrayLike = True,
    ) -> IntArray:
        """Add columns, and return their numbers."""
        self._columns.append((block, [cost, lower, upper, integer]))
        self.n_columns += block.size
        return np.arange(self.n_columns - block.size, self.n_columns)

    def rows(self, block: Block, *, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf) -> IntArray:
        """Add rows, and return their numbers."""
        self._rows.append((block, [lower, upper]))
        self.n_rows += block.size
        return np.arange(self.n_rows - block.size, self.n_rows)

    def row(
        self,
        name: str,
        columns: ArrayLike,
        values: ArrayLike,
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
    ) -> int:
        """Add a row with its entries in some columns, and return its number."""
        self._rows.append((Block(name, 1), [lower, upper]))
        self.add(self.n_rows, columns, values)
        self.n_rows += 1
        return self.n_rows - 1

    def row_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of the rows so far."""
        lower, upper = _spread(self._rows, (float, float))
        return lower, upper

    def numbered(self) -> Iterator[tuple[int, Block]]:
        """Blocks of the rows so far, with the number of the first row of each."""
        number = 0
        for block, _ in self._rows:
            yield number, block
            number += block.size

    def row_blocks(self) -> tuple[Block, ...]:
        """Blocks of the rows so far."""
        return tuple(block for block, _ in self._rows)

    def program(self, group_start: IntArray | None = None, **values: Any) -> Program:
        """Program of what was gathered.

        Parameters
        ----------
        group_start : int array, shape (n_groups + 1,), optional
            Choice groups among the first columns; default: none.
        **values
            Other fields of `Program`.
        """
        cost, lower, upper, integer = _spread(self._columns, (float, float, float, bool))
        row_lower, row_upper = self.row_bounds()
        return Program(
            cost=cost,
            matrix=self.matrix(self.n_rows, self.n_columns),
            row_lower=row_lower,
            row_upper=row_upper,
            lower=lower,
            upper=upper,
            integer=integer,
            group_start=np.zeros(1, dtype=np.int64) if group_start is None else group_start,
            rows=self.row_blocks(),
            columns=tuple(block for block, _ in self._columns),
            **values,
        )


def _spread(gathered: list[tuple[Block, list[Any]]], dtypes: tuple[type, ...]) -> list[Any]:
    """Spread the values of blocks over their members: an array over all blocks for each kind of value."""
    arrays = [
        [v if isinstance(v, np.ndarray) else np.full(block.size, v) for v in values]
        for block, values in gathered
    ]
    return [_joined([array[i] for array in arrays], dtype) for i, dtype in enumerate(dtypes)]


def _spread_out(values: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Values broadcast to a shape, in one line."""
    found = np.asarray(values)
    return (found if found.shape == shape else np.full(shape, found)).ravel()


def _joined(arrays: list[Any], dtype: type) -> Any:
    return np.concatenate([np.empty(0, dtype), *arrays], dtype=dtype, casting="unsafe")
