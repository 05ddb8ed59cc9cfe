"""Records by column: one array for each field, and a model of a record only for who looks at one.

A million jobs are a few arrays; as models they would be gigabytes. Columns are sequences of records, so
whoever needs only a few of these need not know.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, Union, cast, get_args, get_origin

import numpy as np
from pydantic import BaseModel, Discriminator, GetCoreSchemaHandler, Tag, ValidationError, create_model
from pydantic_core import CoreSchema, core_schema

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.column import (
    DTYPES,
    NONE,
    Coded,
    Column,
    Made,
    as_list,
    few_of,
    from_arrow,
    length,
    stored_array,
    with_codes,
)
from wattsched.topology.fields import Strict

RecordT = TypeVar("RecordT", bound=BaseModel)

ROWS, COLUMNS = "[rows]", "[columns]"
"""Forms of the records of a document: a list of objects, or an object with a list for every field."""

BY_COLUMN = 10_000
"""So many generated jobs, nodes or groups are by column, as are decisions of so many jobs."""


class RecordColumns(Made[RecordT], Generic[RecordT]):
    """Records of one model by column.

    Numbers are arrays: of floats with nan for none, of counts with 0 for none, of truth values. Names of the
    records are a list, everything else is `Coded`. Fields that have their default everywhere have no column.

    Attributes
    ----------
    columns : dict of str to column
        Sound: made by `of`, or from models.
    """

    record: ClassVar[type[BaseModel]]
    key: ClassVar[str]
    """Field that names a record."""
    nested: ClassVar[Mapping[str, type[RecordColumns[Any]]]] = {}
    """Columns that may be by column themselves, with the records' names."""
    several: ClassVar[Mapping[str, Any]] = {}
    """Columns with several entries for each record, and their types."""
    instead_of: ClassVar[frozenset[str]] = frozenset()
    """Fields that these stand for."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)
        self._n = len(self.names)
        self._defaults: dict[str, Column] = {}

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Self:
        """Read and validate columns that are lists, numpy arrays, Arrow arrays or `Coded`.

        A pydantic.ValidationError names the place of every value that the record does not take; a TypeError
        or ValueError refuses what is no mapping, and codes that stand for no value.
        """
        if not isinstance(columns, Mapping):
            raise TypeError(f"columns must be a mapping of fields to columns, got {type(columns).__name__}")
        return cls._read(columns, table_of(cls).model_validate)

    @classmethod
    def _read(cls, columns: Mapping[str, Any], validate: Callable[[Any], Any]) -> Self:
        """Read columns; `validate` reads lists by field into a `table_of`, and of arrays a few values."""
        known = {name: from_arrow(values) for name, values in columns.items()}
        known |= {name: with_codes(name, v) for name, v in known.items() if isinstance(v, Coded)}
        # What is made of columns is sound.
        fields = table_of(cls).model_fields
        coded = {name: values for name, values in known.items() if isinstance(values, Coded)}
        sound = {name: v for name, v in coded.items() if isinstance(v.values, Made) and name in fields}
        known = {name: values for name, values in known.items() if name not in sound}
        if isinstance(names := known.get(cls.key), Coded):
            known[cls.key] = names.tolist()
        # What is no field is refused with all its values.
        arrays = {
            name: values
            for name, values in known.items()
            if isinstance(values, np.ndarray | Coded) and name in fields
        }
        known = {name: values if name in arrays else as_list(values) for name, values in known.items()}
        brief = {name: few_of(values, cls._form_of_array(name)) for name, values in arrays.items()}
        try:
            table = validate({**known, **brief})
        except ValidationError:
            if not arrays:
                raise
            table = validate({name: as_list(values) for name, values in known.items()})
            arrays = {}
        listed = {name: values for name, values in table if values is not None and name not in arrays}
        stored = {name: _stored(_form(cls, name), values) for name, values in listed.items()}
        for name, values in arrays.items():
            stored[name] = stored_array(_form(cls, name), values, getattr(table, name))
        stored |= sound
        nested = {name for name in cls.nested if isinstance(stored.get(name), RecordColumns)}
        own = [name for name in columns if name in stored and name not in {*cls.several, *nested}]
        lengths = {name: length(stored[name]) for name in own}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns differ in length: {lengths}")
        return cls(stored).sound()

    @classmethod
    def _form_of_array(cls, name: str) -> str:
        """Form of a column; a count that a record need not state is 0 in arrays where it does not."""
        form, field = _form(cls, name), cls.record.model_fields.get(name)
        optional = field is not None and not field.is_required()
        return "optional count" if form == "count" and optional else form

    def sound(self) -> Self:
        """Return itself; a ValueError for what columns contradict each other in."""
        return self

    @classmethod
    def from_records(cls, records: Sequence[RecordT]) -> Self:
        """Columns of models."""
        if isinstance(records, cls):
            return records
        columns: dict[str, Column] = {}
        for name, field in cls._own_fields().items():
            values = [getattr(record, name) for record in records]
            default = ... if field.is_required() else field.get_default(call_default_factory=True)
            if field.is_required() or values.count(default) < len(values):
                columns[name] = _stored(_form(cls, name), values)
        return cls(columns)

    @classmethod
    def _own_fields(cls) -> dict[str, Any]:
        """Fields of a record that columns have, too."""
        fields = cls.record.model_fields
        return {name: field for name, field in fields.items() if name not in cls.instead_of}

    @property
    def names(self) -> list[str]:
        """Names of the records."""
        names = self.columns[self.key]
        assert isinstance(names, list)
        return names

    @cached_property
    def place(self) -> dict[str, int]:
        """Place of each record by its name, of several the last."""
        return dict(zip(self.names, range(len(self)), strict=True))

    def numbers(self, field: str) -> FloatArray:
        """Column of a field that is a number, nan for none; shape (n_records,)."""
        return cast(FloatArray, self._column(field))

    def counts(self, field: str) -> IntArray:
        """Column of a field that is a count, 0 for none."""
        return cast(IntArray, self._column(field))

    def flags(self, field: str) -> BoolArray:
        """Column of a field that is true or false."""
        return cast(BoolArray, self._column(field))

    def coded(self, field: str) -> Coded:
        """Column of any other field."""
        return cast(Coded, self._column(field))

    def without(self, field: str) -> BoolArray:
        """Return the mask of records without a value in a column, shape (n_records,)."""
        column = self.columns[field]
        if isinstance(column, Coded):
            return np.asarray(column.codes == NONE)
        if isinstance(column, list) or _form(type(self), field) in ("flag", "whole"):
            return np.zeros(length(column), dtype=bool)
        return np.asarray((column == 0) if column.dtype == np.int64 else np.isnan(column))

    def listed(self) -> list[RecordT] | Self:
        """Return the records as a list where they are few, else the columns."""
        if len(self) >= BY_COLUMN:
            return self
        fields = self.fields()
        rows = zip(*fields.values(), strict=True)
        return [self._record(dict(zip(fields, row, strict=True))) for row in rows]

    def fields(self) -> dict[str, list[Any]]:
        """Return every field with a column, as a list of all records' values."""
        own = {name: column for name, column in self.columns.items() if name not in self.several}
        return {name: _listed(_form(type(self), name), column) for name, column in own.items()}

    def without_empty(self) -> Self:
        """Return the records without columns in which none has a value."""
        optional = [name for name in self.columns.keys() - self.several.keys() if self.default(name) is None]
        empty = {name for name in optional if self.without(name).all()}
        return type(self)({name: column for name, column in self.columns.items() if name not in empty})

    def document(self) -> dict[str, Any]:
        """Return the columns as a file has them."""
        return {name: _listed(_form(type(self), name), column) for name, column in self.columns.items()}

    def default(self, field: str) -> Any:
        """Value of a field that a record does not state, `...` where it must."""
        return _defaults(type(self)).get(field, ...)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the records of the parts, one after the other."""
        fields = dict.fromkeys(field for part in parts for field in part.columns)
        return cls({field: _joined([part._column(field) for part in parts]) for field in fields})

    def _column(self, field: str) -> Column:
        """Column of a field, with its default where there is none."""
        if field in self.columns:
            return self.columns[field]
        if field not in self._defaults:
            self._defaults[field] = self._default_column(field)
        return self._defaults[field]

    def _default_column(self, field: str) -> Column:
        """Make a column of a field's default; an empty one where records have several entries."""
        default, form = self.default(field), _form(type(self), field)
        n = 0 if field in self.several else len(self)
        if form == "coded":
            values = [] if default is None or default is ... else [default]
            return Coded(np.full(n, len(values) - 1), values)
        column = _stored(form, [None if default is ... else default] if n else [])
        return _taken(column, np.zeros(n, dtype=np.int64))

    def take(self, places: IntArray) -> Self:
        """Return some of the records."""
        own = {name: column for name, column in self.columns.items() if name not in self.several}
        taken = {name: _taken(column, places) for name, column in own.items()}
        return type(self)(taken | self._several_of(places))

    def _several_of(self, places: IntArray) -> dict[str, Column]:
        """Return the columns with several entries for each record, of some records."""
        return {}

    def __len__(self) -> int:
        return self._n

    def _made(self, j: int) -> RecordT:
        own = (name for name in self.columns if name not in self.several)
        given = {name: _value(_form(type(self), name), self.columns[name], j) for name in own}
        return self._record(given)

    def _record(self, given: dict[str, Any]) -> RecordT:
        # A value of a column is one that the model took before.
        made = self.record.model_construct(set(given), **{**_defaults(type(self)), **given})
        return cast(RecordT, made)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"<{len(self):,} records by column: {', '.join(self.columns)}>"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Have pydantic read columns from an object with a list for every field, and write them as one."""

        def read(value: Any, inner: Callable[[Any], Any]) -> Any:
            if isinstance(value, cls):
                return value
            return cls._read(value, inner) if isinstance(value, dict) else inner(value)

        return core_schema.no_info_wrap_validator_function(
            read,
            handler.generate_schema(table_of(cls)),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda columns: columns.document()
            ),
        )


def form_of(records: Any) -> str:
    """Return the form, rows or columns, that records have, so that only its faults are reported."""
    return COLUMNS if isinstance(records, dict | RecordColumns) else ROWS


@cache
def table_of(columns: type[RecordColumns[Any]]) -> type[BaseModel]:
    """Model of the columns as a file has them: a list of every field, of one length."""
    # As values: types made from values are none to a type checker.
    annotated: Any = Annotated
    listed: Any = list
    fields: dict[str, Any] = {}
    for name, field in columns._own_fields().items():
        entry = annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        required = field.is_required() or name == columns.key
        column = listed[entry]
        if name in columns.nested:
            by_column = annotated[columns.nested[name], Tag(COLUMNS)]
            column = annotated[annotated[column, Tag(ROWS)] | by_column, Discriminator(form_of)]
        fields[name] = (column, ...) if required else (column | None, None)
    fields |= {name: (listed[entry], ...) for name, entry in columns.several.items()}
    doc = f"{columns.record.__name__} records by column: a list for each field, all of one length."
    return create_model(f"{columns.record.__name__}Columns", __base__=Strict, __doc__=doc, **fields)


@cache
def _defaults(columns: type[RecordColumns[Any]]) -> dict[str, Any]:
    """Values of the fields that a record need not state."""
    optional = {name: field for name, field in columns.record.model_fields.items() if not field.is_required()}
    return {name: field.get_default(call_default_factory=True) for name, field in optional.items()}


@cache
def _form(columns: type[RecordColumns[Any]], name: str) -> str:
    """Return the name of the form in which a field is stored."""
    if name == columns.key:
        return "name"
    several = columns.several.get(name)
    kinds = _plain_types(columns.record.model_fields[name].annotation if several is None else several)
    if kinds <= {bool}:
        return "flag"
    if kinds <= {int}:
        return "count" if several is None else "whole"
    if kinds <= {float}:
        return "number"
    return "coded"


def _plain_types(annotation: Any) -> set[Any]:
    """Return the types that a field takes but for None, without their constraints."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _plain_types(get_args(annotation)[0])
    if origin is Union or origin is types.UnionType:
        return {kind for part in get_args(annotation) for kind in _plain_types(part)}
    return set() if annotation is type(None) else {origin or annotation}


def _stored(form: str, values: Sequence[Any]) -> Any:
    """Return the column of some form of a list of values, None for none."""
    if isinstance(values, RecordColumns):
        return values
    if form in ("name", "coded"):
        return list(values) if form == "name" else Coded.of(values)
    known = [value or 0 for value in values] if form == "count" else values
    return np.array(known, dtype=DTYPES[form])  # None becomes nan


def _listed(form: str, column: Column) -> list[Any]:
    """Return the list of values of a column of some form, None for none."""
    values: list[Any] = column if isinstance(column, list) else column.tolist()
    if form == "number":
        return [None if value != value else value for value in values]
    return [value or None for value in values] if form == "count" else values


def _value(form: str, column: Column, j: int) -> Any:
    """Return the value of record j in a column of some form."""
    if isinstance(column, Coded):
        return column.at(j)
    return _listed(form, column[j : j + 1])[0]


def _joined(parts: list[Column]) -> Column:
    """Return columns of one form, one after the other, as one."""
    if isinstance(parts[0], Coded):
        return Coded.joined([part for part in parts if isinstance(part, Coded)])
    if isinstance(parts[0], list):
        return [entry for part in parts if isinstance(part, list) for entry in part]
    return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])


def _taken(column: Column, places: IntArray) -> Column:
    """Return the column of some of the records."""
    if isinstance(column, Coded):
        return column.take(places)
    return [column[j] for j in places.tolist()] if isinstance(column, list) else column[places]
