"""Solution files of HiGHS, SCIP, CBC, GLPK, Gurobi and CPLEX, as points of the program exported.

Columns that a file leaves out are 0: SCIP and CBC write only the others. GLPK's plain form has numbers in
place of names, which are the places of the columns in the exported file. The same forms are written, as a
start for these solvers.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.tolerances import FEASIBILITY
from wattsched.reading.inputs import NoticeWarning
from wattsched.solvers.export import LOWER_SIDE, Column, Exported
from wattsched.solvers.points import feasible_point
from wattsched.topology.arrays import FloatArray

INTEGRALITY = 1e-5
"""So far from a whole number are integer columns of solvers, at most."""

PRINTED = 1e-5
"""Error allowed of a row or the objective, relative to its size: some files have six digits."""

_CBC = re.compile(r"^(\w[\w ,()-]*?) - objective value\s+(\S+)")
_UNKNOWN = (
    "is no solution that is known here, which are the forms of HiGHS, SCIP, CBC, GLPK (of -w and of -o), "
    "Gurobi, and CPLEX (XML)"
)
_NOTHING = ("infeasible", "unbounded", "undefined", "none", "no solution available", "not set", "empty")


@dataclass(frozen=True)
class SolutionFile:
    """Contents of a solution file.

    Attributes
    ----------
    solver : str
        Whose form it has.
    values : dict of str to float
        By column, under the name that the exported file has for it; some solvers add rows.
    objective : float, optional
        The cost, as stated.
    """

    solver: str
    values: dict[str, float]
    objective: float | None = None

    def point(self, program: Program, table: Exported) -> tuple[FloatArray | None, list[str]]:
        """The point of a program, exported as `table`; integer columns are exact, the others best for them.

        Returns
        -------
        point : float array, shape (n_columns,), optional
            None where there are faults.
        faults : list of str
            Columns that the program does not have, and those, and rows, whose limits the values break.
        """
        names = {column.name: None for column in table.columns}
        rows = {row.name for row in table.rows}
        others = [name for name in self.values if name not in names]
        if strange := [name for name in others if name.removesuffix(LOWER_SIDE) not in rows]:
            return None, [f"column '{name:.80}': the program has none of that name" for name in strange]
        x = np.array([self.values.get(name, 0.0) for name in names])
        loose = list(_broken_columns(table.columns, x)) or list(_broken_rows(table, x))
        if loose:
            return None, loose
        point = feasible_point(program, x[: program.n_columns])
        if point is None:
            point = program.rounded(x[: program.n_columns])
            if program.violation(point) > FEASIBILITY:
                rounded = np.concatenate([point, x[program.n_columns :]])
                broken = list(_broken_rows(table, rounded, FEASIBILITY))
                return None, broken or ["no values of the continuous columns satisfy the rows"]
        cost = program.objective(point)
        if self.objective is not None and abs(cost - self.objective) > PRINTED * max(1.0, abs(cost)):
            return None, [f"objective: the file says {self.objective:.10g}, its columns cost {cost:.10g}"]
        return point, []


def read_solution(text: str, columns: Sequence[str]) -> SolutionFile:
    """Read a file that a solver has written of an exported program with these columns, by name, in order.

    Raises ValueError for a form that is not known, a damaged file, and one that holds no solution.
    """
    lines = [line.rstrip() for line in text.splitlines()]
    first = next((line.strip() for line in lines if line.strip()), "")
    return _reader(first)(lines, columns)


def _reader(first: str) -> Callable[[list[str], Sequence[str]], SolutionFile]:
    """Return the reader of a file, by its first line; all take its lines and the exported columns' names."""
    if first == "Model status":
        return _highs
    if first == "Columns":
        return _highs_table
    if first.startswith(("solution status:", "objective value:", "no solution available")):
        return _scip
    if first.startswith("Problem:"):
        return _glpk_report
    if re.match(r"(c|s (mip|bas|ipt))\b", first):
        return _glpk
    if _CBC.match(first):
        return _cbc
    if first.startswith(("#", "=obj=")):
        return _gurobi
    if first.startswith(("<?xml", "<CPLEXSolution")):
        return _cplex
    if not first:
        raise ValueError("is empty")
    raise ValueError(_UNKNOWN)


def _highs(lines: list[str], columns: Sequence[str]) -> SolutionFile:
    """HiGHS's raw forms, with all columns or those that are not 0; `columns` is as all readers take it."""
    status = next((line for line in lines[1:] if line), "none")
    at = next((i for i, line in enumerate(lines) if line.startswith("# Primal solution")), len(lines))
    if _says_none(status) or at + 1 >= len(lines) or lines[at + 1] != "Feasible":
        raise _no_solution(status)
    objective = _after("Objective", lines[at + 2 : at + 3])
    number = _after("# Columns", lines[at + 3 : at + 4])
    if number is None:
        raise ValueError("the line '# Columns' is missing after '# Primal solution values'")
    rest = lines[at + 4 :]
    listed = rest[: next((i for i, line in enumerate(rest) if line.startswith("#")), len(rest))]
    sparse = number < 0  # then each has its place behind its value, too
    values = _values("HiGHS", (line.split()[: 2 if sparse else None] for line in listed if line))
    if len(values) != abs(number):
        early = "the file ends early: " if len(values) < abs(number) else ""
        raise ValueError(f"{early}{abs(number):,.15g} columns are said to follow, there are {len(values):,}")
    return SolutionFile("highs", values, objective)


def _highs_table(lines: list[str], columns: Sequence[str]) -> SolutionFile:
    """HiGHS's table for people; `columns` are all there."""
    status = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("Model status")), "none"
    )
    head = next((line for line in lines if line.split()[:1] == ["Index"]), "")
    end = head.find(" Primal ") + len(" Primal")
    if _says_none(status) or end < len(" Primal"):
        raise _no_solution(status)
    at = next((i for i, line in enumerate(lines) if line == "Rows"), len(lines))
    # Numbers end where their titles do; a status, a dual and a type may be absent.
    rows = [
        [line.split()[-1], (line[:end].split() or [""])[-1]]
        for line in lines[lines.index(head) + 1 : at]
        if line
    ]
    return SolutionFile("highs", _all_values("HiGHS", rows, len(columns)), _after("Objective value:", lines))


def _scip(lines: list[str], columns: Sequence[str]) -> SolutionFile:
    """SCIP's form: columns by name; `columns` is not needed, but as all readers take it."""
    told = [line for line in lines if line]
    status = next((line.partition(":")[2].strip() for line in told if line.startswith("solution status")), "")
    objective = _after("objective value:", told)
    if _says_none(status) or objective is None or math.isinf(objective):
        raise _no_solution(status or told[0])
    rows = (line.split()[:2] for line in told if not line.startswith(("solution status", "objective value")))
    return SolutionFile("scip", _values("SCIP", rows), objective)


def _cbc(lines: list[str], columns: Sequence[str]) -> SolutionFile:
    """CBC's form: columns by number, name and value; `columns` is not needed, but as all readers take it."""
    first, *rest = [line for line in lines if line.strip()]
    found = _CBC.match(first)
    assert found is not None
    status, objective = found[1], _number("CBC", found[2])
    if _says_none(status):
        raise _no_solution(status)
    # Two asterisks stand before what CBC itself calls infeasible: it is looked at like the rest.
    rows = (line.replace("**", "", 1).split()[1:3] for line in rest)
    return SolutionFile("cbc", _values("CBC", rows), objective)


def _glpk(lines: list[str], columns: Sequence[str]) -> SolutionFile:
    """The form of ``glpsol -w``: columns by number."""
    parts = [line.split() for line in lines if line and not line.startswith("c")]
    head = next((part for part in parts if part[0] == "s"), [])
    # s mip ROWS COLUMNS STATUS OBJECTIVE; of an LP there are two statuses.
    if len(head) < 6 or not head[3].isdigit():
        raise ValueError("GLPK's line 's' is missing or damaged")
    if int(head[3]) != len(columns):
        raise ValueError(f"it is of a program with {head[3]} columns, this one has {len(columns)}")
    if set(head[4:-1]) <= {"u", "n", "i"}:
        raise _no_solution({"n": "infeasible"}.get(head[4], "undefined"))
    at = 3 if head[1] == "bas" else 2  # of a basis a column's status stands before its value
    rows = []
    for part in parts:
        if part[0] == "j":
            place = int(part[1]) if len(part) > at and part[1].isdigit() else 0
            if not 1 <= place <= len(columns):
                raise ValueError(f"GLPK's line '{' '.join(part):.80}' names no column")
            rows.append([columns[place - 1], part[at]])
    return SolutionFile("glpk", _all_values("GLPK", rows, len(columns)), _number("GLPK", head[-1]))


def _glpk_report(lines: list[str], columns: Sequence[str]) -> SolutionFile:
    """The form of ``glpsol -o``: a table, in which long names have lines of their own."""
    status = next((line.partition(":")[2].strip() for line in lines if line.startswith("Status:")), "")
    if "OPTIMAL" not in status and "FEASIBLE" not in status.replace("INFEASIBLE", ""):
        raise _no_solution(status.lower())
    told = next((line.partition("=")[2].split() for line in lines if line.startswith("Objective:")), [])
    begin = next((i for i, line in enumerate(lines) if re.match(r" +No\. +Column name", line)), len(lines))
    rows, name = [], ""
    for line in lines[begin + 2 :]:
        if not line.strip():
            break
        parts = line.split()
        # NUMBER NAME [STATUS] ACTIVITY ..., or the same in two lines.
        if not name:
            name, parts = parts[1] if len(parts) > 1 else "", parts[2:]
        if parts:
            marked = parts[0] in ("*", "B", "NL", "NU", "NF", "NS")
            rows.append([name, *parts[marked : marked + 1]])
            name = ""
    stated = next((line.partition(":")[2].split()[:1] for line in lines if line.startswith("Columns:")), [])
    if stated and stated[0].isdigit() and int(stated[0]) != len(columns):
        raise ValueError(f"it is of a program with {stated[0]} columns, this one has {len(columns)}")
    values = _all_values("GLPK", rows, len(columns))
    return SolutionFile("glpk", values, _number("GLPK", told[0]) if told else None)


def _gurobi(lines: list[str], columns: Sequence[str]) -> SolutionFile:
    """Gurobi's form, and MIPLIB's: a name and a value in each line; `columns` is as all readers take it."""
    said = [line.lstrip("# ") for line in lines if line.startswith("#")]
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    objective = _after("Objective value =", said)
    if rows and rows[0][0] == "=obj=":
        objective, rows = _number("Gurobi", rows[0][-1]), rows[1:]
    if not rows and objective is None:
        raise _no_solution("empty")
    return SolutionFile("gurobi", _values("Gurobi", rows), objective)


def _cplex(lines: list[str], columns: Sequence[str]) -> SolutionFile:
    """CPLEX's form in XML, of several solutions the incumbent; `columns` is as all readers take it."""
    text = "\n".join(lines)
    if "<!" in text.replace("<!--", ""):
        raise ValueError("has declarations of its own, which CPLEX does not write")
    try:
        root = ElementTree.fromstring(text.lstrip())
    except ElementTree.ParseError as error:
        raise ValueError(f"{_UNKNOWN}; it is no XML either: {error}") from None
    several = [root] if root.tag == "CPLEXSolution" else root.findall("CPLEXSolution")
    if not several:
        raise ValueError(_UNKNOWN)
    incumbent = [one for one in several if one.find("header[@solutionName='incumbent']") is not None]
    found = (incumbent or several)[0]
    if len(several) > 1:
        which = "the incumbent" if incumbent else "the first"
        warnings.warn(f"assumed: of {len(several)} solutions {which} is meant", NoticeWarning, stacklevel=2)
    header, variables = found.find("header"), found.find("variables")
    told = {} if header is None else header.attrib
    status = told.get("solutionStatusString", "none")
    if _says_none(status) or variables is None:
        raise _no_solution(status)
    both = ((one.get("name"), one.get("value")) for one in variables.iter("variable"))
    values = _values("CPLEX", ([text for text in row if text is not None] for row in both))
    objective = told.get("objectiveValue")
    return SolutionFile("cplex", values, None if objective is None else _number("CPLEX", objective))


def _values(solver: str, rows: Iterable[Sequence[str]]) -> dict[str, float]:
    """Values by column; rows are pairs of these, and messages name the solver."""
    values: dict[str, float] = {}
    for row in rows:
        if len(row) != 2:
            raise ValueError(f"'{' '.join(row):.80}' is not a column and its value, as {solver} writes them")
        name, value = row
        if name in values:
            raise ValueError(f"column '{name:.80}' stands there twice")
        values[name] = _number(solver, value, f"column '{name:.80}': ")
        if not math.isfinite(values[name]):
            raise ValueError(f"column '{name:.80}' has no finite value: {value:.80}")
    return values


def _all_values(solver: str, rows: Sequence[Sequence[str]], columns: int) -> dict[str, float]:
    """Values by column of a solver that writes all columns, of which there are so many."""
    values = _values(solver, rows)
    if len(values) < columns:
        raise ValueError(f"the file ends early: {len(values)} of {columns} columns are there")
    return values


def _number(solver: str, text: str, place: str = "") -> float:
    """Number that a text says; messages begin with the place and name the solver."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    # Python takes more for a number than solvers write: underscores, and digits of other scripts.
    if math.isnan(number) or "_" in text or not text.isascii():
        raise ValueError(f"{place}'{text:.80}' is not a number, as {solver} writes them")
    return number


def _after(label: str, lines: Iterable[str]) -> float | None:
    """Number behind a label at the beginning of a line; None where no line has it."""
    found = next((line.removeprefix(label).strip() for line in lines if line.startswith(label)), None)
    return None if found is None else _number("a solver", found)


def _says_none(status: str) -> bool:
    """True if a solver says that what it has written is no solution."""
    return status.lower().startswith(("infeasible", "integer infeasible", "unbounded"))


def _no_solution(status: str) -> ValueError:
    said = status.lower().rstrip(".")
    told = said if any(word in said for word in _NOTHING) else f"{said}, without a feasible point"
    return ValueError(f"the file holds no solution: the solver said '{told}'")


def _broken_columns(columns: Iterable[Column], x: FloatArray) -> Iterator[str]:
    """Columns whose values are beyond their bounds, or no whole numbers."""
    for column, value in zip(columns, x.tolist(), strict=True):
        name, _, low, high, whole = column
        if whole and abs(value - round(value)) > INTEGRALITY:
            yield f"column '{name}': is {value:.10g}, and must be a whole number"
        elif value < low - PRINTED * max(1.0, abs(low)):
            yield f"column '{name}': is {value:.10g}, below its bound {low:.10g}"
        elif value > high + PRINTED * max(1.0, abs(high)):
            yield f"column '{name}': is {value:.10g}, above its bound {high:.10g}"


def _broken_rows(table: Exported, x: FloatArray, tolerance: float = PRINTED) -> Iterator[str]:
    """Rows whose limits are exceeded, by the tolerance relative to their size or to what adds up to them."""
    activity: FloatArray = np.asarray(table.matrix @ x)
    gross: FloatArray = np.asarray(abs(table.matrix) @ np.abs(x))
    for (name, low, high), value, size in zip(table.rows, activity.tolist(), gross.tolist(), strict=True):
        limit, word = (high, "most") if value > high else (low, "least")
        if (low <= value <= high) or abs(value - limit) <= tolerance * max(1.0, abs(limit), size):
            continue
        told = f"exactly {limit:.10g}" if low == high else f"at {word} {limit:.10g}"
        yield f"row '{name}': is {value:.10g}, and must be {told}"


class Form(NamedTuple):
    """Form in which a solver reads a solution: templates of its parts."""

    head: str
    column: str
    end: str = ""
    row: str = ""


FORMS = {
    "highs": Form(
        "Model status\nUnknown\n\n# Primal solution values\nFeasible\n"
        "Objective {cost!r}\n# Columns {columns}\n",
        "{name} {value!r}\n",
        "# Rows 0\n\n# Dual solution values\nNone\n\n# Basis\nHiGHS_basis_file v2\nNone\n",
    ),
    "scip": Form("solution status: unknown\nobjective value: {cost!r}\n", "{name} {value!r}\n"),
    "cbc": Form("Feasible - objective value {cost!r}\n", "{number} {name} {value!r} 0\n"),
    "glpk": Form(
        "s mip {rows} {columns} f {cost!r}\n", "j {number} {value!r}\n", "e o f\n", "i {number} {value!r}\n"
    ),
    "gurobi": Form("# Objective value = {cost!r}\n", "{name} {value!r}\n"),
    "cplex": Form(
        '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<CPLEXSolution version="1.2">\n'
        ' <header problemName="wattsched" objectiveValue="{cost!r}" solutionStatusString="unknown"/>\n'
        " <variables>\n",
        '  <variable name="{name}" value="{value!r}"/>\n',
        " </variables>\n</CPLEXSolution>\n",
    ),
}
"""Forms that are written; all are read."""


def write_solution(form: str, table: Exported, x: FloatArray, cost: float) -> str:
    """Text of a point of the program exported as `table`, in one of `FORMS`."""
    head, column, end, row = FORMS[form]
    values = np.append(x, np.ones(len(table.columns) - len(x)))
    activity: FloatArray = np.asarray(table.matrix @ values)
    parts = [head.format(cost=cost, rows=len(table.rows), columns=len(table.columns))]
    parts += [row.format(number=i, value=value) for i, value in enumerate(activity.tolist(), start=1)]
    named = enumerate(zip(table.columns, values.tolist(), strict=True), start=1)
    # Names are letters, digits and underscores.
    parts += [column.format(number=i, name=one.name, value=value) for i, (one, value) in named]
    return "".join([*parts, end])
