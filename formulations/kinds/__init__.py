r"""Programs by kind: choice columns that are never written down.

Groups of one *kind* choose among the same rows. Group g in row o costs :math:`w_g v_o + c_g`, takes
:math:`s_{go} = \min(W_g p_o + l_g, H)` seconds, and uses :math:`f_o + s_{go} m_o + r_g a_o` of the rows of
the program; c and l are what a start costs and loses, r is the group's credit. Under row prices y its reduced
cost is

.. math:: w_g v_o + c_g - f_o^T y - \min(W_g p_o + l_g, H)\, m_o^T y - r_g a_o^T y,

so a pass over all groups of a kind is a small matrix product and an arg-min, and whether a row can be best at
all is a matter of the kind. What a group may choose besides are columns of its own.

`groups` has the groups with their columns, `passes` what is computed of all of them at row prices, `shards`
where that is done, and `program` the program under its rows, and those over a few of its columns that are
written down.
"""

from wattsched.formulations.kinds.groups import KindGroups, KindRows, OwnColumns, Uses
from wattsched.formulations.kinds.program import KindProgram, Part, part_around, part_of
from wattsched.formulations.kinds.shards import Shard, Spread

__all__ = [
    "KindGroups",
    "KindProgram",
    "KindRows",
    "OwnColumns",
    "Part",
    "Shard",
    "Spread",
    "Uses",
    "part_around",
    "part_of",
]
