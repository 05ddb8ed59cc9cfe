"""Columns of files of carbon intensities and prices: which are read, in which unit, zone and currency."""

from __future__ import annotations

import json
import re
import warnings
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from wattsched.instances.errors import NoticeWarning
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.instances.traces.carbon import read_carbon, utc_time
from wattsched.reading.units import Quantity


def written(folder: Path, text: str) -> Path:
    path = folder / "carbon.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_which_column_of_several_is_taken_is_told(tmp_path: Path) -> None:
    columns = "Carbon intensity gCO₂eq/kWh (direct)", "Carbon intensity gCO₂eq/kWh (Life cycle)"
    file = written(tmp_path, f"Datetime (UTC),{','.join(columns)}\n2023-01-01 00:00:00,90,120\n")
    with pytest.warns(NoticeWarning, match=r"assumed: the column '.*\(Life cycle\)' is taken, not '.*direct"):
        assert read_carbon(file).per_kwh.tolist() == [120.0]
    with pytest.warns(NoticeWarning, match=r"not read: the columns '.*\(Life cycle\)' for carbon") as told:
        assert read_carbon(file, columns[0]).per_kwh.tolist() == [90.0]
    assert len(told) == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_was_counts_before_a_forecast_and_the_day_ahead_before_the_day(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    cases: list[tuple[Quantity, str, str, str]] = [
        ("carbon", "Actual Carbon Intensity (gCO2/kWh)", "Forecast Carbon Intensity (gCO2/kWh)", "g"),
        ("money", "Day-ahead Price (EUR/MWh)", "Intraday Price (EUR/MWh)", "EUR"),
    ]
    for quantity, taken, other, unit in cases:
        names, cells = (taken, other), ("300", "200")
        header, row = (",".join(both[n] for n in order) for both in (names, cells))
        file = written(tmp_path, f"Datetime (UTC),{header},Index\n2025-10-25T18:00Z,{row},moderate\n")
        with pytest.warns(NoticeWarning, match=r"assumed: the column '.*' is taken, not '(For|Intraday)"):
            assert read_carbon(file, None, quantity).per_kwh.tolist() == [300.0 if unit == "g" else 0.3]
        assert read_carbon(file, other, quantity).per_kwh.tolist() == [200.0 if unit == "g" else 0.2]
    bare = written(tmp_path, "datetime,forecast,actual,index\n2025-10-25T18:00Z,200,300,moderate\n")
    with pytest.warns(NoticeWarning, match="the column 'actual' is taken, not 'forecast', 'index'"):
        assert read_carbon(bare).per_kwh.tolist() == [300.0]
    zones = written(tmp_path, "time,DE [g/kWh],FR [g/kWh],FR forecast [g/kWh]\n2025-10-25T18:00Z,1,2,3\n")
    with pytest.raises(ValueError, match="no zone is named: one of the columns 'DE"):
        read_carbon(zones)


def test_files_of_european_markets_are_read_through_the_night_in_which_clocks_go_back(tmp_path: Path) -> None:
    begin = utc_time("2025-10-25T22:00Z")
    hours = [
        datetime.fromtimestamp(begin.timestamp() + 3600 * n, ZoneInfo("Europe/Berlin")) for n in range(5)
    ]
    entsoe = ["26/10/2025 00:00:00", "26/10/2025 01:00:00 (CEST)", "26/10/2025 02:00:00 (CEST)"]
    entsoe += ["26/10/2025 02:00:00 (CET)", "26/10/2025 03:00:00 (CET)"]
    times = {
        "Datum von": [f"{hour:%d.%m.%Y %H:%M}" for hour in hours],
        "MTU (CET/CEST)": [f"{time} - 26/10/2025 04:00:00" for time in entsoe],
        "MTU (UTC)": [f"{hour.astimezone(UTC):%d/%m/%Y %H:%M}:00" for hour in hours],
        "HourUTC": [f"{hour.astimezone(UTC):%Y-%m-%d %H:%M}" for hour in hours],
        "TimeUTC": [f"{hour.astimezone(UTC):%Y-%m-%dT%H:%M}" for hour in hours],
    }
    usual = {"HourUTC": "SpotPriceEUR", "TimeUTC": "DayAheadPriceEUR"}
    for column, cells in times.items():
        value = usual.get(column, "Preis [€/MWh]")
        rows = "".join(f"{cell};{n},50\n" for n, cell in enumerate(cells))
        found = read_carbon(written(tmp_path, f"{column};{value}\n{rows}"), None, "money")
        assert found.slots(begin, 5, 3600.0) == pytest.approx([(n + 0.5) / 1000 for n in range(5)])
        assert (found.currency, found.zoned) == ("EUR", True)
    with pytest.raises(ValueError, match=r"column 'time': '25.10.2025 02:00' is neither"):
        read_carbon(written(tmp_path, "time,EUR/MWh\n25.10.2025 02:00,1\n"), None, "money")


@pytest.mark.parametrize(
    ("header", "value", "told"),
    [
        ("Time Stamp (America/New_York),Name,LBMP ($/MWHr),Losses ($/MWHr)", "LBMP ($/MWHr)", (0.06, "USD")),
        ("valid_from,valid_to,value_exc_vat,value_inc_vat", "value_exc_vat", (0.6, "GBP")),
        ("From,To,EUR/MWh,Volume", None, (0.06, "EUR")),
        ("INTERVALSTARTTIME_GMT,NODE,USD/MWh,GROUP", None, (0.06, "USD")),
    ],
)
def test_times_of_markets_are_found_beside_several_columns(
    tmp_path: Path, header: str, value: str | None, told: tuple[float, str]
) -> None:
    rows = "2026-10-31T04:00-04:00,x,60,70\n2026-10-31T05:00-04:00,x,60,70\n"
    found = read_carbon(written(tmp_path, f"{header}\n{rows}"), value, "money")
    assert (found.per_kwh[0], found.currency) == (pytest.approx(told[0]), told[1])


def test_rows_of_several_kinds_at_one_time_are_named(tmp_path: Path) -> None:
    rows = "2026-10-24 00:00,Sequence 1,9\n2026-10-24 00:00,Sequence 2,8\n"
    with pytest.raises(ValueError, match="rows are of 'Sequence 1' and of 'Sequence 2' by column 'Sequence'"):
        read_carbon(written(tmp_path, f"MTU (UTC),Sequence,EUR/MWh\n{rows}"), None, "money")


def test_prices_are_found_beside_a_zone_of_the_intensities(tmp_path: Path) -> None:
    header = "interval_start_utc,location,lmp [USD/MWh]"
    file = written(tmp_path, f"{header}\n2023-01-01 00:00:00,ZONE,-90\n")
    found = read_carbon(file, "DE", "money", may_lack=True)
    assert (found.per_kwh.tolist(), found.currency, found.zoned) == ([-0.09], "USD", True)
    for quantity in ("carbon", "money"):
        with pytest.raises(ValueError, match="no column 'DE'"):
            read_carbon(file, "DE", quantity)


def test_a_header_tells_how_far_its_clock_is_from_utc(tmp_path: Path) -> None:
    for name, ahead_h in (("Date (UTC+1)", 1), ("time GMT-03:30", -3.5), ("Date (GMT)", 0)):
        found = read_carbon(written(tmp_path, f"{name},EUR/MWh\n2026-11-02 01:00,100\n"), None, "money")
        begin_s = utc_time("2026-11-02T01:00Z").timestamp() - 3600 * ahead_h
        assert (found.begin_s[0], found.zoned) == (begin_s, True)


def test_a_header_and_a_column_of_units_agree(tmp_path: Path) -> None:
    text = "time,co2 g/kWh,unit\n2026-11-02 01:00,300,{}\n"
    assert read_carbon(written(tmp_path, text.format("g/kWh"))).per_kwh.tolist() == [300.0]
    with pytest.raises(ValueError, match=r"column 'co2 g/kWh': the header says g/kWh, not lbs/MWh"):
        read_carbon(written(tmp_path, text.format("lbs/MWh")))


def test_a_currency_alone_is_told_to_be_per_kwh(tmp_path: Path) -> None:
    with pytest.warns(NoticeWarning, match="assumed: EUR per kWh, as the header names no energy"):
        read_carbon(written(tmp_path, "time,price (EUR)\n2026-11-02 01:00,80\n"), None, "money")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("time,price_eur_mwh,currency\n2026-11-02,80,GBP\n", "the header says eur mwh, not GBP"),
        ("time,price [EUR/MWh]\n2026-11-02,80 GBP\n", "'80 GBP': the header says EUR/MWh, not GBP"),
        ("time,price\n2026-11-02,8 EUR/MWh\n2026-11-03,8 EUR\n", "'8 EUR' is in EUR, others in EUR/MWh"),
        ("time,price,unit\n2026-11-02,80,barrel\n", "the unit 'barrel' is not known"),
    ],
)
def test_statements_of_a_unit_that_contradict_are_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        read_carbon(written(tmp_path, text), None, "money")


@pytest.mark.parametrize(
    ("header", "row", "begin", "per_kwh", "currency"),
    [
        ("time,tz,price (AUD/MWh)", "2025-04-02 10:30,+10:30,80", "2025-04-02T00:00Z", 0.08, "AUD"),
        ("time,time zone,EUR/MWh", "2025-07-02 02:00,Europe/Berlin,80", "2025-07-02T00:00Z", 0.08, "EUR"),
        (
            "time,utc,price (AUD/MWh)",
            "2025-04-02 10:30,2025-04-02 00:00,80",
            "2025-04-02T00:00Z",
            0.08,
            "AUD",
        ),
        ("time,price,currency,unit", "2025-04-02T00:00Z,80,AUD,MWh", "2025-04-02T00:00Z", 0.08, "AUD"),
        ("time,price,Unit,Currency", "2025-04-02T00:00Z,80,$/MWh,AUD", "2025-04-02T00:00Z", 0.08, "AUD"),
        ("time,price,currency", "2025-04-02T00:00Z,.08,SEK", "2025-04-02T00:00Z", 0.08, "SEK"),
        ("time,RRP,currency", "2025-04-02T00:00Z,80,AUD", "2025-04-02T00:00Z", 0.08, "AUD"),
        ("time,SpotPriceDKK,Currency", "2025-04-02T00:00Z,80,DKK", "2025-04-02T00:00Z", 0.08, "DKK"),
        ("time,RRP,unit", "2025-04-02T00:00Z,80,EUR/kWh", "2025-04-02T00:00Z", 80.0, "EUR"),
        ("time,price_eur,unit", "2025-04-02T00:00Z,80,MWh", "2025-04-02T00:00Z", 0.08, "EUR"),
        ("time,price_eur,price_unit", "2025-04-02T00:00Z,80,per MWh", "2025-04-02T00:00Z", 0.08, "EUR"),
        ("time,price_eur,unit", "2025-04-02T00:00Z,80,EUR/MWh", "2025-04-02T00:00Z", 0.08, "EUR"),
        ("time,price_eur_mwh,currency", "2025-04-02T00:00Z,80,EUR", "2025-04-02T00:00Z", 0.08, "EUR"),
        ("time,price per MWh,currency", "2025-04-02T00:00Z,80,EUR", "2025-04-02T00:00Z", 0.08, "EUR"),
        ("time,price_ct_kwh,currency", "2025-04-02T00:00Z,8,EUR", "2025-04-02T00:00Z", 0.08, "EUR"),
        ("time,price ($/MWh),currency", "2025-04-02T00:00Z,80,CAD", "2025-04-02T00:00Z", 0.08, "CAD"),
        ("time,price [EUR/MWh]", "2025-04-02T00:00Z,80 EUR", "2025-04-02T00:00Z", 0.08, "EUR"),
        ("time,price [EUR]", "2025-04-02T00:00Z,80 EUR/MWh", "2025-04-02T00:00Z", 0.08, "EUR"),
        ("time,RRP,unit", "2025-04-02T00:00Z,80,$/MWh", "2025-04-02T00:00Z", 0.08, "AUD"),
        ("time,MCP (Rs/MWh)", "2025-04-02T00:00Z,80", "2025-04-02T00:00Z", 0.08, "INR"),
        ("time,MCP (₹/MWh)", "2025-04-02T00:00Z,80", "2025-04-02T00:00Z", 0.08, "INR"),
        ("time,RRP (A$/MWh)", "2025-04-02T00:00Z,80", "2025-04-02T00:00Z", 0.08, "AUD"),
        (
            *("interval_start,interval_end,lmp (USD/MWh)", "2025-04-02T00:00Z,2025-04-02T01:00Z,80"),
            *("2025-04-02T00:00Z", 0.08, "USD"),
        ),
        (
            *("REGION,SETTLEMENTDATE,TOTALDEMAND,RRP", "SA1,2025/04/02 11:00:00,1500,80"),
            *("2025-04-02T00:00Z", 0.08, "AUD"),
        ),
    ],
)
def test_zones_currencies_and_units_of_rows_are_read(
    tmp_path: Path, header: str, row: str, begin: str, per_kwh: float, currency: str
) -> None:
    found = read_carbon(written(tmp_path, f"{header}\n{row}\n"), quantity="money")
    assert found.begin == utc_time(begin)
    assert (found.per_kwh.tolist(), found.currency, found.zoned) == (pytest.approx([per_kwh]), currency, True)


def test_what_contradicts_a_zone_or_a_unit_is_refused_or_named(tmp_path: Path) -> None:
    local = written(tmp_path, "time,tz,EUR/MWh\n2025-04-02 10:30,ACDT,80\n")
    with pytest.raises(
        ValueError, match=r"line 2, column 'tz': 'ACDT' is no zone that is read; write \+10:30"
    ):
        read_carbon(local, quantity="money")
    stated = written(tmp_path, "time (UTC+1),tz,EUR/MWh\n2025-04-02 10:30,+10:30,80\n")
    with pytest.raises(ValueError, match="no column of times"):
        read_carbon(stated, quantity="money")
    stated = written(tmp_path, "date (utc),tz,EUR/MWh\n2025-04-02 10:30,+10:30,80\n")
    with pytest.warns(NoticeWarning, match="not read: the columns 'tz' for prices"):
        assert read_carbon(stated, quantity="money").begin == utc_time("2025-04-02T10:30Z")
    grams = written(tmp_path, "time,carbon_intensity,carbon_intensity_unit\n2025-04-02T00Z,1000,lbs/MWh\n")
    assert read_carbon(grams).per_kwh.tolist() == pytest.approx([453.59237])
    both = "time,Carbon Intensity,price_unit,carbon_intensity_unit,price\n"
    both += "2025-04-02T00Z,1000,EUR/MWh,lbs/MWh,80\n"
    with pytest.warns(
        NoticeWarning, match="not read: the columns 'Carbon Intensity', 'carbon_intensity_unit'"
    ):
        assert read_carbon(written(tmp_path, both), "price", "money").per_kwh.tolist() == pytest.approx(
            [0.08]
        )
    assert read_carbon(tmp_path / "carbon.csv", "Carbon Intensity").per_kwh[0] == pytest.approx(453.59237)


def test_answers_of_watttime_are_read(tmp_path: Path) -> None:
    file = tmp_path / "moer.json"
    points = [{"point_time": f"2025-04-05T00:0{minute}:00+00:00", "value": 1000} for minute in (0, 5)]
    file.write_text(json.dumps({"data": points, "meta": {"units": "lbs_co2_per_mwh"}}))
    assert read_carbon(file).per_kwh.tolist() == pytest.approx([453.59237] * 2)
    table = written(tmp_path, "timestamp,MOER,MOER version,frequency\n2025-04-05T00:00Z,1000,4.0,300\n")
    with pytest.warns(NoticeWarning, match="column 'MOER': assumed: in lb/MWh, as MOER is published"):
        assert read_carbon(table).per_kwh.tolist() == pytest.approx([453.59237])
    for document in (
        [],
        {"data": points},
        {"data": [{}], "meta": {"units": "lb/MWh"}},
        {"data": 1, "meta": 2},
    ):
        file.write_text(json.dumps(document))
        with pytest.raises(ValueError, match=r"moer.json: is no answer of WattTime's"):
            read_carbon(file)


def test_a_column_of_units_states_the_unit_of_the_values(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pounds = "timestamp,value,units\n2026-11-01T00:00Z,900,lbs_co2_per_mwh\n"
        assert read_carbon(written(tmp_path, pounds), "value").per_kwh[0] == pytest.approx(408.233133)
        euros = read_carbon(written(tmp_path, "time,value,unit\n2026-11-01,40,EUR/MWh\n"), quantity="money")
    assert (euros.per_kwh[0], euros.currency) == (pytest.approx(0.04), "EUR")
    mixed = "time,value,unit\n2026-11-01,40,EUR/MWh\n2026-11-02,40,EUR/kWh\n"
    with pytest.raises(ValueError, match="line 3, column 'unit': is not 'EUR/MWh', as in the first row"):
        read_carbon(written(tmp_path, mixed), quantity="money")
    with pytest.raises(ValueError, match="the unit 'apples' is not known"):
        read_carbon(written(tmp_path, "time,value,unit\n2026-11-01,40,apples\n"))


def test_values_of_watttime_need_their_unit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="column 'value': has no unit, and WattTime's are lb/MWh"):
        read_carbon(written(tmp_path, "point_time,value\n2026-01-01T00:00Z,900\n"))
    file = written(tmp_path, "point_time,value [lb/MWh]\n2026-01-01T00:00Z,1000\n")
    assert read_carbon(file).per_kwh.tolist() == pytest.approx([453.59237])


def test_a_zone_names_the_column_of_intensities_and_of_prices(tmp_path: Path) -> None:
    def table(name: str, header: str, *values: float) -> Path:
        rows = [
            f"2026-01-01 0{hour}:00,{','.join(str(value + hour) for value in values)}" for hour in range(4)
        ]
        (tmp_path / name).write_text("\n".join([f"time,{header}", *rows, ""]), encoding="utf-8")
        return tmp_path / name

    def horizon(carbon: Path | None, tariff: Path, zone: str | None) -> ShiftingInstance:
        return shifting_horizon(jobs=2, gpus=8, slots=4, carbon=carbon, tariff=tariff, zone=zone)

    grams, prices = table("grams.csv", "DE,FR", 300, 50), table("prices.csv", "DE,FR", 7, 5)
    one = table("one.csv", "DE", 9)
    made = horizon(grams, prices, "FR")
    assert made.carbon_g_per_kwh == [50, 51, 52, 53]
    assert horizon(None, prices, "FR").price_per_kwh == made.price_per_kwh == [5, 6, 7, 8]
    with pytest.raises(
        ValueError, match=r"prices.csv, line 1: no zone is named: one of the columns 'DE', 'FR'"
    ):
        horizon(one, prices, None)
    with pytest.warns(NoticeWarning, match="one.csv: assumed: the column 'DE' is taken, as there is no 'FR'"):
        assert horizon(grams, one, "FR").price_per_kwh == [9, 10, 11, 12]


def test_a_header_names_the_time_zone_of_its_clock(tmp_path: Path) -> None:
    """The hour that comes twice in autumn is read in order."""
    rows = "".join(f"2025-10-26 {hour:02d}:00,{n}\n" for n, hour in enumerate((1, 2, 2, 3)))
    for name in ("timestamp (Europe/Berlin)", "Date/Time [Europe/Paris]"):
        found = read_carbon(written(tmp_path, f"{name},EUR/MWh\n{rows}"), None, "money")
        begin_s = utc_time("2025-10-25T23:00Z").timestamp()
        assert (found.begin_s.tolist(), found.zoned) == ([begin_s + 3600 * n for n in range(4)], True)
    for odd in ("Date/Time (UTC+99)", "time (UTC-24)"):
        with pytest.raises(ValueError, match=r"carbon.csv: offset must be"):
            read_carbon(written(tmp_path, f"{odd},EUR/MWh\n{rows}"), None, "money")
    spring = written(tmp_path, "time (Europe/Berlin),g/kWh\n2025-03-30 02:30,1\n")
    with pytest.raises(
        ValueError, match=r"line 2, column 'time .Europe/Berlin.': the clocks of Europe/Berlin"
    ):
        read_carbon(spring)


@pytest.mark.parametrize("name", ["Time (CET)", "MTU (CET)", "Datetime_local", "time [EST]", "Date ET"])
def test_clocks_that_headers_leave_open_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        ValueError, match=r"line 2, column '.*is no zone that is read; write \(Europe/Berlin\)"
    ):
        read_carbon(written(tmp_path, f"{name},g/kWh\n2025-10-26 01:00,1\n"))
    assert read_carbon(written(tmp_path, f"{name},g/kWh\n2025-10-26 01:00Z,1\n")).zoned
