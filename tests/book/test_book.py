"""The book: its declared pages, the stored numbers and what is written of them, and runs through the command."""

import json
import shutil
from pathlib import Path

import pytest

from fedsim.book.checks import PSEUDO, SPLIT
from fedsim.book.pages import read_claims, read_labels, read_pages
from fedsim.book.records import Record, Store, read_store
from fedsim.book.writing import overview_text, page_text
from fedsim.cli import main
from fedsim.commands.book import write
from fedsim.errors import ConfigError
from fedsim.results.record import read_summary
from fedsim.sweeps.runner import run_cell
from fedsim.sweeps.sweep_file import read_sweep

RESULTS = Path(__file__).parents[2] / "docs" / "results"
LARGEST = 100_000  # bytes of a picture
SMALL = "plga-without-stragglers"


@pytest.fixture(scope="module")
def stores() -> dict[str, Store]:
    return {name: read_store(RESULTS / f"{name}.json") for name in read_pages()}


def test_the_pages_name_presets_cells_tables_and_claims_that_exist() -> None:
    claims = {claim.number for claim in read_claims()}
    for page in read_pages().values():
        cells = {str(page.keys_of(s.titles[n], c)["cell"]) for s in page.sweeps.values() for n, c in s.cells.items()}
        assert all(cells)
        assert page.sweeps or page.measure
        assert not page.full or read_sweep(page.full).scale.startswith("full size")
        for check in page.checks:
            assert check.claim in claims
            assert check.order or check.least is not None or check.most is not None
            assert not check.table or check.table in {table.title for table in page.tables}
            assert all(term in PSEUDO or check.order == "" or term for term in SPLIT.split(check.order)[::2])
            if check.along == "cell" and cells:
                assert {*check.named, *check.aside} <= cells, f"{page.name}: {check.says}"


def test_the_overview_has_a_status_for_each_of_the_56_claims() -> None:
    rows = [line.split(" | ") for line in (RESULTS / "overview.md").read_text().splitlines()]
    found = {row[0].strip("| "): row[2] for row in rows if row[0].strip("| ").isdigit()}
    assert list(found) == [str(number) for number in range(1, 57)]
    assert [s for s in found.values() if not s.startswith(("holds (", "does not hold (", "not tested"))] == []


def test_the_pages_are_those_of_the_stored_numbers(stores: dict[str, Store]) -> None:
    pages, labels = read_pages(), read_labels()
    assert (RESULTS / "overview.md").read_text() == overview_text(pages, stores, read_claims())
    for name, page in pages.items():
        path = RESULTS / f"{name}.md"
        assert path.exists() == bool(stores[name].records)
        assert not path.exists() or path.read_text() == page_text(page, stores[name], labels)
        assert not (page.picture and path.exists()) or (RESULTS / f"{name}.png").stat().st_size < LARGEST


def test_every_stored_record_belongs_to_its_page(stores: dict[str, Store]) -> None:
    pages = read_pages()
    assert [(n, r.keys) for n, store in stores.items() for r in store.records if not pages[n].belongs(r)] == []


def test_a_run_of_the_book_repeats_bit_by_bit(stores: dict[str, Store], tmp_path: Path) -> None:
    name, config = next(iter(read_sweep(SMALL).cells.items()))
    folders = [tmp_path / "one" / name, tmp_path / "two" / name]
    assert [run_cell(config.replace(out=str(folder)).flat(), {}) for folder in folders] == ["", ""]
    hashes = [read_summary(folder)["weights_sha256"] for folder in folders]
    assert hashes[0] == hashes[1]
    stored = next(r for r in stores[SMALL].records if r.keys == {"cell": name.partition("-seed")[0], "seed": 0})
    final = read_summary(folders[0])["accuracy"]["global"]["final"]
    assert 100 * final == pytest.approx(stored.numbers["global final"], abs=1)  # other machines may round differently


def test_the_command_collects_runs_and_goes_on_where_it_stopped(
    stores: dict[str, Store], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = read_sweep(SMALL).cells
    name = next(name for name in cells if "seed=1" in name)
    folder = tmp_path / "runs" / SMALL / name
    assert run_cell(cells[name].replace(out=str(folder)).flat(), {}) == ""
    words = ["book", "--only", SMALL, "--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    assert main([*words, "--minutes", "0"]) == 0
    assert "11 runs are left" in capsys.readouterr().out
    (record,) = read_store(tmp_path / "out" / f"{SMALL}.json").records
    stored = next(r for r in stores[SMALL].records if r.keys == record.keys)
    assert record.numbers == pytest.approx(stored.numbers, abs=1)
    shutil.rmtree(tmp_path / "runs")
    assert main([*words, "--no-run"]) == 0  # the stored number is enough
    assert (tmp_path / "out" / f"{SMALL}.md").exists()
    assert (tmp_path / "out" / f"{SMALL}.png").exists()


def test_new_runs_take_the_place_of_means(tmp_path: Path) -> None:
    means = [Record({"cell": cell}, {"rounds": 5.0}, {"rounds": 1.0}, means=3) for cell in ("a", "b")]
    store = Store(tuple(means), "0.1", "means only").with_records(
        [Record({"cell": "a", "seed": 0}, {"rounds": 4.0})], "0.2"
    )
    assert [(r.keys, r.numbers["rounds"]) for r in store.records] == [
        ({"cell": "b"}, 5.0),
        ({"cell": "a", "seed": 0}, 4.0),
    ]
    assert store.note == "means only"
    store.write(tmp_path / "page.json")
    assert read_store(tmp_path / "page.json") == store
    assert json.loads((tmp_path / "page.json").read_text())["version"] == "0.2"


def test_damaged_numbers_and_unknown_pages_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"{SMALL}.json").write_text('{"records": 3}')
    with pytest.raises(ConfigError, match=f"{SMALL}.json holds no records of a page"):
        write(tmp_path)
    assert main(["book", "--only", "spfl-tabel1", "--list"]) == 2
    assert "unknown page 'spfl-tabel1'. Did you mean 'spfl-table1'?" in capsys.readouterr().err
    assert main(["book", "--set", "lr=1", "--out", str(tmp_path)]) == 2
    assert "sets data-root alone, not lr" in capsys.readouterr().err
