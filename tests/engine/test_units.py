"""Units of headers and values: every reader finds the same watts, joules, grams and money, or refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perfmodels.logs.writers import Job, readings, smi
from wattsched.cli.replay_options import Amount
from wattsched.instances.errors import NoticeWarning
from wattsched.instances.traces.carbon import read_carbon
from wattsched.instances.traces.job_lists import read_plain
from wattsched.perfmodels.logs import read_log
from wattsched.perfmodels.measurements import read_measurements
from wattsched.reading.units import Numbers, Quantity

CARBON = {
    "gCO2/kWh": 1.0,
    "gCO2eqPerkWh": 1.0,
    "gCO2eqkWh": 1.0,
    "gCO₂eq/kWh": 1.0,
    "g CO2e per kWh": 1.0,
    "g_per_kwh": 1.0,
    "carbon_intensity_g_per_kwh": 1.0,
    "kg/kWh": 1e3,
    "kg CO2e per MWh": 1.0,
    "kgco2/mwh": 1.0,
    "lbs/MWh": 0.45359237,
    "lb CO2/kWh": 453.59237,
    "pounds_per_MWh": 0.45359237,
    "tCO2/MWh": 1e3,
    "tonnes CO2e / GWh": 1.0,
    "g/MJ": 3.6,
    "g pro kWh": 1.0,
}
MONEY = {
    "EUR/kWh": (1.0, "EUR"),
    "EUR/MWh": (1e-3, "EUR"),
    "EUR/MWhe": (1e-3, "EUR"),
    "EUR.MWh-1": (1e-3, "EUR"),
    "€/MWh": (1e-3, "EUR"),
    "USD/MWh": (1e-3, "USD"),
    "$/kWh": (1.0, "USD"),
    "us$/mwh": (1e-3, "USD"),
    "ct/kWh": (1e-2, ""),
    "EUR ct/kWh": (1e-2, "EUR"),
    "GBP per MWh": (1e-3, "GBP"),
    "pence/kWh": (1e-2, "GBP"),
    "GBp/kWh": (1e-2, "GBP"),
    "GBX/MWh": (1e-5, "GBP"),
    "gbp/kWh": (1.0, "GBP"),
    "USc/kWh": (1e-2, "USD"),
    "EUc/kWh": (1e-2, "EUR"),
    "price_nok_per_mwh": (1e-3, "NOK"),
    "price_per_mwh": (1e-3, ""),
    "Cent pro kWh": (1e-2, ""),
    "ct pro kWh": (1e-2, ""),
    "Euro pro MWh": (1e-3, "EUR"),
}
POWER = {"W": 1.0, "mW": 1e-3, "kW": 1e3, "KW": 1e3, "MW": 1e6, "watts": 1.0, "milliwatts": 1e-3}
ENERGY = {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "Wh": 3600.0, "kWh": 3.6e6, "KWH": 3.6e6, "MWh": 3.6e9, "mJ": 1e-3}
FORMS: list[Callable[[str], tuple[str, str]]] = [
    lambda unit: (f"value ({unit})", ""),
    lambda unit: (f"value [{unit}]", ""),
    lambda unit: ("value", f" {unit}"),
    lambda unit: (f"value [{unit}]", f" {unit}"),
]
"""Header and what comes behind each value: the unit in one, in the other, and in both."""
forms = st.sampled_from(FORMS)
values = st.floats(1.0, 1000.0).map(lambda value: round(value, 3))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("units") / "file.csv"


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def per_kwh(path: Path, header: str, value: str, quantity: Quantity) -> tuple[float, str]:
    hours = (f"2026-11-02T0{hour}:00Z,{value}" for hour in range(3))
    trace = read_carbon(written(path, f"time,{header}", *hours), quantity=quantity)
    return trace.per_kwh[1], trace.currency


@given(unit=st.sampled_from([*CARBON]), form=forms, value=values)
def test_carbon_in_any_unit_is_the_same_grams(path: Path, unit: str, form, value: float) -> None:
    header, behind = (unit, "") if "_" in unit else form(unit)
    found, _ = per_kwh(path, header, f"{value / CARBON[unit]!r}{behind}", "carbon")
    assert found == pytest.approx(value, rel=1e-12)


@given(unit=st.sampled_from([*MONEY]), form=forms, value=values, sign=st.sampled_from([1, -1]))
def test_a_price_in_any_unit_is_the_same_money(path: Path, unit: str, form, value: float, sign: int) -> None:
    (factor, currency), (header, behind) = MONEY[unit], (unit, "") if "_" in unit else form(unit)
    found = per_kwh(path, header, f"{sign * value / factor!r}{behind}", "money")
    assert found == (pytest.approx(sign * value, rel=1e-12), currency)


BRACKETED = {
    unit: words
    for unit in [*CARBON, *MONEY]
    if (words := re.findall(r"/ ?\w+|(?:per|pro) \w+|[^\s/]+", unit)) and len(words) > 1 and "_" not in unit
}


@given(unit=st.sampled_from([*BRACKETED]), at=st.integers(0, 9), value=values, before=st.booleans())
def test_brackets_around_a_part_of_a_unit_change_nothing(
    path: Path, unit: str, at: int, value: float, before: bool
) -> None:
    words, quantity = list(BRACKETED[unit]), "carbon" if unit in CARBON else "money"
    at %= len(words)
    words[at] = f"({words[at]})"
    header = f"{'day ahead ' * before}{' '.join(words)}"
    whole = per_kwh(path, unit, f"{value!r}", quantity)
    assert per_kwh(path, header, f"{value!r}", quantity) == whole


@pytest.mark.parametrize("header", ["stone CO2 (per kWh)", "(stone) CO2 per kWh", "CO2 (per stone)"])
def test_unknown_units_with_brackets_are_refused_by_name(path: Path, header: str) -> None:
    with pytest.raises(ValueError, match=r"the unit '.*(stone|per).*' is not known"):
        per_kwh(path, header, "5", "carbon")


@given(unit=st.sampled_from([*POWER]), form=forms, value=values)
def test_power_in_any_unit_is_the_same_watts_in_tables_and_logs(
    path: Path, unit: str, form, value: float
) -> None:
    header, behind = form(unit)
    header, cell = header.replace("value", "power"), f"{value / POWER[unit]!r}{behind}"
    rows = (f"{name},0,3600,1,bert,{cell}" for name in "ab")
    with pytest.warns(NoticeWarning):
        jobs = read_plain(written(path, f"job,arrival,duration,gpus,model,{header}", *rows))
    assert jobs[0].power_w == pytest.approx(value, rel=1e-12)
    steps = (f"{gpus},64,0.5,{cell}" for gpus in (1, 2))
    measured = read_measurements(written(path, f"gpus,batch_size,step_time_s,{header}", *steps))
    assert measured.power_w == pytest.approx(value, rel=1e-12)
    log = smi(readings(Job("17", 1, value)))
    plain = read_log(written(path, log)).power_w
    query = header.replace("power", "power.draw").translate(str.maketrans("()", "[]"))
    *lines, _ = log.replace("power.draw [W]", query).split("\n")
    cells = [line.split(", ") for line in lines]
    place = next(k for k, name in enumerate(cells[0]) if name.startswith("power.draw"))
    for row in cells[1:]:
        row[place] = f"{float(row[place].removesuffix(' W')) / POWER[unit]!r}{behind}"
    assert read_log(written(path, *map(", ".join, cells))).power_w == pytest.approx(plain, rel=1e-12)


@given(unit=st.sampled_from([*ENERGY]), value=values)
def test_an_energy_in_any_unit_is_the_same_joules(unit: str, value: float) -> None:
    assert Amount().read(f"energy_j={value / ENERGY[unit]!r} {unit}")[1] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("quantity", "header", "cells", "words"),
    [
        ("carbon", "MOER (oz/MWh)", ["1"], "line 1, column 'MOER (oz/MWh)': the unit 'oz/MWh' is not known"),
        ("carbon", "kgCO2", ["1"], "column 'kgCO2': the unit 'kgCO2' is not known"),
        ("carbon", "emissions_gCO₂eq", ["1"], "the unit 'gCO2eq' is not known"),
        ("money", "Preis (Taler pro kWh)", ["1"], "the unit 'Taler pro kWh' is not known"),
        ("money", "per_mwh", ["1"], "the unit 'mwh' is not known"),
        ("carbon", "short tons/MWh", ["1"], "the unit 'tons/MWh' is not known"),
        ("carbon", "mg/kWh", ["1"], "the unit 'mg/kWh' is not known"),
        ("carbon", "g/kWh", ["1 kg/kWh"], "'1 kg/kWh': the header says g/kWh, not kg/kWh"),
        ("carbon", "g_per_kwh", ["100", "-50"], "line 3, column 'g_per_kwh': must be at least 0, got -50"),
        ("money", "price", ["1 EUR/MWh", "2 USD/MWh"], "'2 USD/MWh' is in USD, others in EUR"),
        ("money", "price", ["1 EUR/MWh", "2"], "'2' has no unit, others of its column have"),
        ("money", "price", ["1", "2 EUR/MWh"], "'2 EUR/MWh' has a unit, others of its column have none"),
        ("money", "price [XYZ/MWh]", ["1"], "the unit 'XYZ/MWh' is not known"),
        ("money", "price [ZAc/kWh]", ["1"], "the unit 'ZAc/kWh' is not known"),
        ("money", "price_ct", ["1"], "column 'price_ct': the unit 'ct' is not known"),
        ("money", "price cents", ["1"], "the unit 'cents' is not known"),
        ("money", "price_GBp", ["1"], "is not known"),
        ("money", "price_mwh", ["1"], "the unit 'mwh' is not known"),
        ("carbon", "carbon_intensity_kg", ["1"], "the unit 'kg' is not known"),
        ("carbon", "co2_lbs", ["1"], "the unit 'lbs' is not known"),
        ("money", "X$/MWh", ["1"], "the unit 'X$/MWh' is not known"),
        ("money", "cost per hour", ["1"], "the unit 'cost per hour' is not known"),
    ],
)
def test_what_no_reader_knows_is_refused(
    path: Path, quantity: Quantity, header: str, cells: list[str], words: str
) -> None:
    rows = (f"2026-11-02T0{hour}:00Z,{cell}" for hour, cell in enumerate(cells))
    with pytest.raises(ValueError, match=r"file\.csv, line \d") as error:
        read_carbon(written(path, f"time,{header}", *rows), quantity=quantity)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("power_mw", "'mw' may be milli or mega: write mW or MW"),
        ("power [hp]", "the unit 'hp' is not known; read are W, mW, kW or MW"),
        ("power (hp)", "the unit 'hp' is not known"),
    ],
)
def test_power_that_may_be_two_things_is_refused(header: str, words: str) -> None:
    with pytest.raises(ValueError, match="place, column") as error:
        Numbers(header, "power", "place")
    assert words in str(error.value)


def test_numbers_without_a_unit_are_ours_and_this_is_told(path: Path) -> None:
    with pytest.warns(NoticeWarning, match="column 'price': assumed: in money per kWh"):
        assert per_kwh(path, "price", "-0.02", "money") == (-0.02, "")
    for header, value, told in (
        ("RRP ($/MWh)", "95", r"\$ is of USD"),
        ("price (¢/kWh)", "9.5", "¢ is of USD"),
        ("price", "0.095 $", "per kWh, as no value names an energy"),
    ):
        with pytest.warns(NoticeWarning, match=f"assumed: .*(?:{told})"):
            assert per_kwh(path, header, value, "money") == (pytest.approx(0.095), "USD")
    with pytest.warns(NoticeWarning, match="column 'FR': assumed: in g/kWh"):
        assert per_kwh(path, "FR", "50", "carbon") == (50.0, "")


def test_the_column_that_states_the_unit_is_taken_among_others(path: Path) -> None:
    text = "Datetime (UTC),Datetime (Local),Price (USD/MWh)", "2022-03-07 00:00Z,2022-03-06 16:00,-4.5"
    trace = read_carbon(written(path, *text), quantity="money")
    assert (trace.per_kwh[0], trace.currency) == (pytest.approx(-0.0045), "USD")


@pytest.mark.parametrize(
    ("unit", "told"), [("tons/MWh", True), ("ton/MWh", True), ("t/MWh", False), ("tonnes/MWh", False)]
)
def test_that_a_ton_is_metric_is_told(
    path: Path, unit: str, told: bool, recwarn: pytest.WarningsRecorder
) -> None:
    assert per_kwh(path, unit, "0.4", "carbon") == (pytest.approx(400), "")
    assert any("a ton is metric" in str(one.message) for one in recwarn) == told
